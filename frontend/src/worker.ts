/**
 * The worker of `net/matching.ts`: says of each name whether a regular expression is found in it, in either case; or what
 * its groups capture there: all of what is found where it has no groups, null where it is not found.
 */

interface Question {
  expression: string;
  names: string[];
  capture: boolean;
}

const worker = self as unknown as Worker;

worker.onmessage = ({ data }: MessageEvent<Question>) => {
  const wanted = new RegExp(data.expression, "i");
  worker.postMessage(
    data.names.map((name) => {
      if (!data.capture) return wanted.test(name);
      const found = wanted.exec(name);
      return found && (found.length > 1 ? found.slice(1).map((part) => part ?? "") : found).join(", ");
    }),
  );
};
