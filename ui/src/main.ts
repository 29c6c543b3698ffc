import { mount } from "svelte";
import "uplot/dist/uPlot.min.css";
import App from "./App.svelte";
import "./app.css";

const target = document.getElementById("app");
if (!target) throw new Error("index.html has an element #app");
mount(App, { target });
