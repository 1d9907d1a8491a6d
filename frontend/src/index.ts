/** The module that TensorBoard's page loads. */
import { App } from "./app";
import base from "./style/index.css";
import overview from "./style/overview.css";
import print from "./style/print.css";
import run from "./style/run.css";
import { h } from "./view/element";

/** Called once by TensorBoard, in the frame it has made for us. */
export function render(): void {
  document.documentElement.lang = "en";
  document.title = "Supervisor";
  document.head.append(h("style", {}, document.createTextNode(base + overview + run + print)));
  const root = h("div", { id: "supervisor" });
  document.body.append(root);
  new App().start(root);
}
