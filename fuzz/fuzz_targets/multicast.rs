//! Any octets as messages of IGMP or MLD to a host with memberships and to a querier: nothing
//! panics, messages that were understood survive writing, no timer is in the past, and memory is
//! bounded. Input: records of an octet that selects what happens, an octet of time, a length, and
//! the packet after the octets that all of them have.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use squall_host::{
    GroupVersion, MembershipContext, MembershipTimers, Memberships, Querier, QuerierSettings,
    SourceFilter, igmp, mld,
};
use squall_units::Nanos;

fuzz_target!(|data: &[u8]| {
    let settings = QuerierSettings::default();
    let timers = MembershipTimers::of(GroupVersion::Three);
    let (mut host, mut querier) = (Memberships::default(), Querier::default());
    let (mut now, mut rest) = (Nanos(1_000_000_000), data);
    querier.start(now, &settings);
    while let [choice, time, len, more @ ..] = rest {
        let (packet, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        now = Nanos(now.0 + u64::from(*time) * 100_000_000);
        let cx = MembershipContext { now, chance: u64::from(*choice) << 56, timers: &timers };
        let mut out = Vec::new();
        while host.due().is_some_and(|due| due <= now) {
            host.timer(&cx, &mut out);
        }
        if querier.due().is_some_and(|due| due <= now) {
            querier.timer(now, &settings, &mut out);
        }
        let parsed = match choice & 3 {
            0 => igmp::parse(packet).map(|(source, message)| (IpAddr::V4(source), message)),
            1 => mld::parse(packet).map(|(source, message)| (IpAddr::V6(source), message)),
            _ => {
                let group = IpAddr::from([239, 0, 0, choice >> 6]);
                let filter = match choice >> 2 & 3 {
                    0 => SourceFilter::default(),
                    1 => SourceFilter::any(),
                    kind => SourceFilter {
                        exclude: kind == 2,
                        sources: [IpAddr::from([10, 0, 0, choice >> 4 & 3])].into(),
                    },
                };
                host.listen(&cx, [group], &filter, &mut out);
                continue;
            }
        };
        let Ok((source, message)) = parsed else { continue };
        let mut again = Vec::new();
        let family = match source {
            IpAddr::V4(source) => {
                igmp::write(source, &message, &mut again);
                igmp::parse(&again).map(|(source, message)| (IpAddr::V4(source), message))
            }
            IpAddr::V6(source) => {
                mld::write(source, &message, &mut again);
                mld::parse(&again).map(|(source, message)| (IpAddr::V6(source), message))
            }
        };
        assert_eq!(family, Ok((source, message.clone())));
        host.receive(&cx, &message);
        querier.receive(now, (source, [10, 0, 0, 1].into()), &message, &settings);
    }
    assert!(host.members() <= 4);
});
