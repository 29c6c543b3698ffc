//! xdp_live's transmit queue over a veth pair, whose other end receives by af_xdp: its program makes the peer poll.

use squall_port::conformance::{Bench, check};

use crate::{Outcome, Skipped, enter, port};

/// Room for the most frames that are sent before anybody looks.
const RECEIVER: &str = "af_xdp:veth-b,take=all,ring=32768";

/// An error where this user may not load programs.
fn need_programs() -> Outcome {
    squall_port_linux::Permissions::of_this_process().xdp_programs().map_err(Skipped)?;
    Ok(())
}

pub fn xdp_live_conforms() -> Outcome {
    enter()?;
    need_programs()?;
    let open = &mut || Ok((port("xdp_live:veth-a")?, Some(port(RECEIVER)?)));
    check(Bench { open, stored: false });
    Ok(())
}
