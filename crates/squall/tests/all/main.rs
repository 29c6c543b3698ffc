//! One binary for these tests, because each binary links the whole tool. Tests on real time are in
//! `timed`; tests that inspect their process or keep the machine busy are separate.

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
