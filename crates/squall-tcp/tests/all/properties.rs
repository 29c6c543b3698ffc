//! Under any loss, reordering and corruption: all data arrives in order or the flow ends with a
//! reason, nothing is left over, and time advances.

use proptest::prelude::*;
use squall_tcp::{Congestion, Reason, Tunables};
use squall_units::Nanos;

use crate::common::{Fault, Pair, Plan};

prop_compose! {
    fn tunables()(
        mss in prop_oneof![Just(1460u16), 88u16..9000],
        initwnd in 1u16..20,
        window in 2000u32..200_000,
        wscale in proptest::option::of(0u8..=10),
        sack in any::<bool>(),
        timestamps in any::<bool>(),
        no_delay in any::<bool>(),
        delayed_ack in 0u64..500,
        congestion in prop_oneof![
            Just(Congestion::NewReno), Just(Congestion::Cubic), Just(Congestion::Bbr),
        ],
        ecn in any::<bool>(),
        time_wait in prop_oneof![Just(60_000u64), 0u64..2000],
    ) -> Tunables {
        let ms = |n: u64| Nanos(n * 1_000_000);
        let window = window.min(u32::from(u16::MAX) << wscale.unwrap_or(0));
        Tunables {
            mss, initwnd, window, wscale, sack, timestamps, no_delay, ecn,
            reassembly: window,
            delayed_ack: ms(delayed_ack),
            time_wait: ms(time_wait),
            congestion,
            retries: 14,
            syn_retries: 14,
            rto_max: ms(4000),
            // A GSO packet's checksum is not verified, so a damaged one may reset only one end, and
            // the other then has nothing to send.
            keepidle: ms(30_000),
            ..Tunables::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn all_arrives_or_a_reason_is_given(
        tunables in tunables(),
        loss in prop_oneof![Just(0.0), 0.0..0.2],
        duplicate in 0.0..0.2,
        reorder in 0.0..0.5,
        corrupt in prop_oneof![Just(0.0), 0.0..0.05],
        delay in 0u64..100_000_000,
        (request, response) in (1u32..100_000, 1u32..100_000),
        flows in 1u32..4,
        chunk in prop_oneof![Just(u32::MAX), 1000u32..100_000],
        (seed, v6, half_close) in (any::<u64>(), any::<bool>(), any::<bool>()),
        gso_max_size in prop_oneof![Just(0u16), 1500..=u16::MAX],
        pause in proptest::option::of((1u32..50_000, 0u64..10_000_000_000)),
        (rate, queue) in prop_oneof![Just((0, 0)), (20_000u64..10_000_000, 3000u64..200_000)],
    ) {
        let patient = tunables.time_wait > Nanos(10_000_000_000);
        let fault = Fault { loss, duplicate, reorder, corrupt, delay: Nanos(delay), rate, queue };
        let pause = pause.map(|(at, wait)| (at, Nanos(wait)));
        let mut pair = Pair::new(Plan {
            request, response, flows, chunk, tunables, fault, v6, seed, gso_max_size, half_close, pause, ..Plan::default()
        });
        pair.run();
        for stack in [&pair.client, &pair.server] {
            prop_assert_eq!((stack.active(), stack.time_wait()), (0, 0), "leaked");
            prop_assert_eq!(stack.next_due(), None, "a timer is left");
            let counters = stack.counters(pair.class);
            let ended: u64 = Reason::ALL.iter().map(|r| counters.ended(*r)).sum();
            prop_assert_eq!(ended, counters.attempts + counters.accepts);
        }
        // A damaged packet may pass undetected, because the checksum has only 16 bits.
        if corrupt == 0.0 {
            prop_assert_eq!(pair.client.app().bad_octets + pair.server.app().bad_octets, 0);
            for (reason, talk) in &pair.client.app().ended {
                prop_assert!(*reason != Reason::Closed || talk.received == response, "{reason:?} {}", talk.received);
            }
            // Without TIME-WAIT, a late FIN meets no flow and is reset.
            if loss < 0.1 && patient {
                for (reason, talk) in &pair.client.app().ended {
                    prop_assert_eq!((*reason, talk.received), (Reason::Closed, response));
                }
            }
        }
    }
}
