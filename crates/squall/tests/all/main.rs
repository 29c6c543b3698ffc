//! One binary for these, as each that is linked carries the whole tool. What is measured on real time
//! is in `timed`; what looks at its own process, or keeps the machine busy, is by itself.

mod attack;
mod bounds;
mod edit;
mod exact;
mod examples;
mod golden;
mod mistakes;
mod nodes;
mod replay;
mod trex;
mod union;
