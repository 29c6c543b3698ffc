// The width of the window: some tables have fewer columns in a narrow window.

import { MediaQuery } from "svelte/reactivity";

/** The same width as in the style sheets. */
export const narrow = new MediaQuery("max-width: 760px");

/** Whether the window has room for a list at the side of a report. */
export const hasRoom = new MediaQuery("min-width: 1601px");
