/** Why there is no answer. `starting`: ask again; `gone`: no answer; `refused`: the backend says why. */
export class BackendError extends Error {
  constructor(
    readonly kind: "gone" | "starting" | "failed" | "missing" | "refused",
    message: string,
  ) {
    super(message);
  }
}
