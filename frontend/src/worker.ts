/** The worker of `net/matching.ts`: says of each name whether a regular expression is found in it, in either case. */

interface Question {
  expression: string;
  names: string[];
}

const worker = self as unknown as Worker;

worker.onmessage = ({ data }: MessageEvent<Question>) => {
  const wanted = new RegExp(data.expression, "i");
  worker.postMessage(data.names.map((name) => wanted.test(name)));
};
