//! A single binary, because each binary is linked with the whole tool. Tests on real time are in
//! `timed`. Tests that inspect their process or keep the machine busy have their own binaries.

mod attack;
mod bounds;
mod edit;
mod exact;
mod examples;
mod golden;
mod hosts;
mod interfaces;
mod many;
mod mistakes;
mod nodes;
mod replay;
mod routers;
mod routes;
mod trex;
mod union;
