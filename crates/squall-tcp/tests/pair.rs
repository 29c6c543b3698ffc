//! Two stacks and the way between them, in virtual time.

mod common;

use common::{Fault, Pair, Plan};
use squall_tcp::{Congestion, Reason, Tunables};
use squall_units::Nanos;

const MS: u64 = 1_000_000;

#[test]
fn a_request_is_answered_and_nothing_is_left() {
    for v6 in [false, true] {
        let mut pair = Pair::new(Plan { v6, ..Plan::default() });
        pair.run();
        pair.check();
        assert_eq!(pair.client.counters(pair.class).closed, 1);
    }
}

#[test]
fn megabytes_arrive_whole_whatever_happens_on_the_way() {
    for loss in [0.0, 0.01, 0.05] {
        for (sack, timestamps, wscale) in
            [(true, true, Some(7)), (false, false, None), (true, false, Some(4)), (false, true, Some(7))]
        {
            for congestion in [Congestion::NewReno, Congestion::Cubic] {
                let tunables = Tunables {
                    sack,
                    timestamps,
                    wscale,
                    window: if wscale.is_some() { 256 << 10 } else { 65_535 },
                    reassembly: 65_535,
                    congestion,
                    ..Tunables::default()
                };
                let fault = Fault { loss, reorder: loss, duplicate: loss, delay: Nanos(5 * MS), ..Fault::default() };
                let mut pair = Pair::new(Plan {
                    request: 3_000_000,
                    response: 1_000_000,
                    tunables,
                    fault,
                    v6: sack != timestamps,
                    ..Plan::default()
                });
                pair.run();
                pair.check();
                assert_eq!(pair.client.counters(pair.class).ended(Reason::Closed), 1, "{loss} {sack} {timestamps}");
            }
        }
    }
}
