//! A querier of IGMP or MLD: the router side of RFC 2236 section 7, RFC 2710 section 6, RFC 3376
//! section 6 and RFC 3810 section 7. It keeps the groups with members, but not their sources: a
//! group has members if a host wants any source of it.

use std::{collections::BTreeMap, net::IpAddr};

use squall_units::Nanos;

use crate::multicast::{GroupMessage, GroupVersion, Query, Record, RecordKind, is_reported};

/// Version and timers (RFC 3376 section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuerierSettings {
    pub version: GroupVersion,
    pub robustness: u8,
    /// Time between general queries, 125 s.
    pub query_interval: Nanos,
    /// Time within which hosts answer these, 10 s.
    pub query_response: Nanos,
    /// Time within which hosts answer queries for a group, and time between these, 1 s.
    pub last_member: Nanos,
}

impl Default for QuerierSettings {
    fn default() -> Self {
        Self {
            version: GroupVersion::Three,
            robustness: 2,
            query_interval: Nanos(125_000_000_000),
            query_response: Nanos(10_000_000_000),
            last_member: Nanos(1_000_000_000),
        }
    }
}

impl QuerierSettings {
    fn times(&self, of: Nanos) -> Nanos {
        Nanos(of.0.saturating_mul(self.robustness.max(1).into()))
    }

    /// How long a group has members after a report (section 8.4).
    fn membership(&self) -> Nanos {
        self.times(self.query_interval) + self.query_response
    }

    /// How long another querier counts as present (section 8.5).
    fn other_present(&self) -> Nanos {
        self.times(self.query_interval) + Nanos(self.query_response.0 / 2)
    }
}

/// One querier on one link.
#[derive(Clone, Debug, Default)]
pub struct Querier {
    /// Next general query; while another querier is present, the end of its time.
    general: Option<Nanos>,
    /// General queries of the start that are left.
    startup: u8,
    other: bool,
    groups: BTreeMap<IpAddr, Members>,
    /// The next timer of a group, or a time before it: there may be hundreds of thousands of groups,
    /// too many to examine each time.
    earliest: Option<Nanos>,
    /// Reports for groups that did not fit into memory.
    pub too_many: u64,
}

#[derive(Clone, Copy, Debug)]
struct Members {
    until: Nanos,
    /// Queries for the group that are left, and the time of the next one.
    queries: u8,
    next: Nanos,
}

/// Groups of a querier at most.
const MOST: usize = 1 << 20;

impl Querier {
    /// Sends the first general query.
    pub fn start(&mut self, now: Nanos, settings: &QuerierSettings) {
        self.general = Some(now);
        self.startup = settings.robustness.max(1);
    }

    /// Whether this querier sends queries; otherwise, another one has a lower address.
    pub fn is_elected(&self) -> bool {
        !self.other
    }

    /// Groups with members.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> {
        self.groups.keys().copied()
    }

    /// When [`Querier::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        self.earliest.into_iter().chain(self.general).min()
    }

    /// Runs the timers that are due.
    pub fn timer(&mut self, now: Nanos, settings: &QuerierSettings, out: &mut Vec<GroupMessage>) {
        if self.general.is_some_and(|due| due <= now) {
            self.other = false;
            self.startup = self.startup.saturating_sub(1);
            // The start has shorter intervals (section 8.6).
            let interval = match self.startup {
                0 => settings.query_interval,
                _ => Nanos(settings.query_interval.0 / 4),
            };
            self.general = Some(now + interval);
            out.push(query(settings, None, settings.query_response));
        }
        if self.earliest.is_none_or(|due| due > now) {
            return;
        }
        self.groups.retain(|_, members| now < members.until);
        for (group, members) in &mut self.groups {
            if members.queries > 0 && members.next <= now {
                members.queries -= 1;
                members.next = now + settings.last_member;
                out.push(query(settings, Some(*group), settings.last_member));
            }
        }
        let due = |of: &Members| if of.queries > 0 { of.next.min(of.until) } else { of.until };
        self.earliest = self.groups.values().map(due).min();
    }

    /// A group has a timer at `due`.
    fn await_group(&mut self, due: Nanos) {
        self.earliest = Some(self.earliest.map_or(due, |before| before.min(due)));
    }

    /// Handles a message from `source`. `own`: the address of the querier.
    pub fn receive(
        &mut self,
        now: Nanos,
        (source, own): (IpAddr, IpAddr),
        message: &GroupMessage,
        settings: &QuerierSettings,
    ) {
        match message {
            // The lowest address queries (section 6.6.2). Switches without an address query from
            // 0.0.0.0 and take no part.
            GroupMessage::Query(query) if source < own && !source.is_unspecified() => {
                if !std::mem::replace(&mut self.other, true) {
                    // From now on, the other one asks for the last members.
                    self.groups.values_mut().for_each(|members| members.queries = 0);
                }
                self.startup = 0;
                self.general = Some(now + settings.other_present());
                if let Some(members) = query.group.and_then(|group| self.groups.get_mut(&group))
                    && !query.suppress
                    && query.sources.is_empty()
                {
                    members.until = members.until.min(now + settings.times(query.max_response));
                    let until = members.until;
                    self.await_group(until);
                }
            }
            GroupMessage::Query(_) => {}
            GroupMessage::Report { group, .. } => self.report(now, *group, settings),
            GroupMessage::Leave(group) => self.leave(now, *group, settings),
            GroupMessage::Records(records) => {
                for Record { kind, group, sources } in records {
                    use RecordKind::{Allow, Block, IsExclude, IsInclude, ToExclude, ToInclude};
                    match (kind, sources.is_empty()) {
                        (IsExclude | ToExclude, _) | (IsInclude | ToInclude | Allow, false) => {
                            self.report(now, *group, settings);
                        }
                        // Other hosts may want the sources that one blocks.
                        (ToInclude, true) | (Block, false) => self.leave(now, *group, settings),
                        (IsInclude | Allow | Block, true) => {}
                    }
                }
            }
        }
    }

    fn report(&mut self, now: Nanos, group: IpAddr, settings: &QuerierSettings) {
        if !is_reported(group) {
            return;
        }
        if self.groups.len() >= MOST && !self.groups.contains_key(&group) {
            self.too_many += 1;
            return;
        }
        let until = now + settings.membership();
        self.groups.insert(group, Members { until, queries: 0, next: now });
        self.await_group(until);
    }

    /// Asks whether the group has other members.
    fn leave(&mut self, now: Nanos, group: IpAddr, settings: &QuerierSettings) {
        let Some(members) = self.groups.get_mut(&group) else { return };
        if self.other || members.queries > 0 {
            return;
        }
        let left = settings.times(settings.last_member);
        (members.queries, members.next) = (settings.robustness.max(1), now);
        members.until = members.until.min(now + left);
        self.await_group(now);
    }
}

fn query(settings: &QuerierSettings, group: Option<IpAddr>, response: Nanos) -> GroupMessage {
    let newest = settings.version == GroupVersion::Three;
    GroupMessage::Query(Query {
        version: settings.version,
        max_response: response,
        group,
        sources: Vec::new(),
        suppress: false,
        robustness: if newest { settings.robustness } else { 0 },
        interval: newest.then_some(settings.query_interval),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Nanos {
        Nanos((seconds * 1e9).round() as u64)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[derive(Default)]
    struct Script {
        querier: Querier,
        settings: QuerierSettings,
        now: f64,
    }

    impl Script {
        fn started() -> Self {
            let mut script = Self::default();
            script.querier.start(seconds(0.0), &script.settings);
            script
        }

        /// The queries until a time, with their times.
        fn until(&mut self, end: f64) -> Vec<(f64, Option<IpAddr>)> {
            let mut sent = Vec::new();
            while let Some(due) = self.querier.due().filter(|due| *due <= seconds(end)) {
                let mut out = Vec::new();
                self.querier.timer(due, &self.settings, &mut out);
                for message in out {
                    let GroupMessage::Query(query) = message else { panic!("{message:?}") };
                    sent.push((due.as_secs_f64(), query.group));
                }
            }
            self.now = end;
            sent
        }

        fn receive(&mut self, from: &str, message: &GroupMessage) {
            let addresses = (ip(from), ip("10.0.0.5"));
            self.querier.receive(seconds(self.now), addresses, message, &self.settings);
        }

        fn record(&mut self, kind: RecordKind, sources: &[&str]) {
            let sources = sources.iter().map(|text| ip(text)).collect();
            let record = Record { kind, group: ip("239.1.1.1"), sources };
            self.receive("10.0.0.9", &GroupMessage::Records(vec![record]));
        }

        fn groups(&self) -> usize {
            self.querier.groups().count()
        }
    }

    fn general() -> GroupMessage {
        query(&QuerierSettings::default(), None, seconds(10.0))
    }

    #[test]
    fn the_start_has_two_queries_a_quarter_of_the_interval_apart() {
        let mut script = Script::started();
        let times: Vec<f64> = script.until(300.0).iter().map(|sent| sent.0).collect();
        assert_eq!(times, [0.0, 31.25, 156.25, 281.25]);
    }

    #[test]
    fn interval_and_robustness_are_settable() {
        let mut script = Script::default();
        script.settings.query_interval = seconds(4.0);
        script.settings.robustness = 3;
        script.querier.start(seconds(0.0), &script.settings);
        let times: Vec<f64> = script.until(12.0).iter().map(|sent| sent.0).collect();
        assert_eq!(times, [0.0, 1.0, 2.0, 6.0, 10.0]);
    }

    #[test]
    fn a_group_without_reports_has_members_for_260_seconds() {
        let mut script = Script::started();
        script.until(1.0);
        script.record(RecordKind::IsExclude, &[]);
        script.until(260.9);
        assert_eq!(script.groups(), 1);
        script.until(261.0);
        assert_eq!(script.groups(), 0);
    }

    #[test]
    fn the_last_member_is_asked_for_twice_and_the_group_ends_2_seconds_after_its_leave() {
        for version in [GroupVersion::Two, GroupVersion::Three] {
            let mut script = Script::started();
            script.settings.version = version;
            script.until(50.0);
            let group = ip("239.1.1.1");
            script.receive("10.0.0.9", &GroupMessage::Report { version, group });
            script.receive("10.0.0.9", &GroupMessage::Leave(group));
            assert_eq!(script.until(51.9), [(50.0, Some(group)), (51.0, Some(group))]);
            assert_eq!(script.groups(), 1);
            script.until(52.0);
            assert_eq!(script.groups(), 0);
        }
    }

    #[test]
    fn an_answer_of_another_member_keeps_the_group() {
        let mut script = Script::started();
        script.until(50.0);
        script.record(RecordKind::ToExclude, &[]);
        script.record(RecordKind::ToInclude, &[]);
        assert_eq!(script.until(50.5).len(), 1);
        script.record(RecordKind::IsExclude, &[]);
        assert_eq!(script.until(100.0), [], "no second query");
        assert_eq!(script.groups(), 1);
    }

    #[test]
    fn records_with_sources_are_members_and_blocked_ones_a_question() {
        let mut script = Script::started();
        script.until(50.0);
        script.record(RecordKind::IsInclude, &[]);
        assert_eq!(script.groups(), 0);
        script.record(RecordKind::Allow, &["10.0.0.1"]);
        assert_eq!(script.groups(), 1);
        script.record(RecordKind::Block, &["10.0.0.1"]);
        assert_eq!(script.until(60.0).len(), 2);
        assert_eq!(script.groups(), 0);
    }

    #[test]
    fn a_lower_address_queries_until_255_seconds_after_its_last_query() {
        let mut script = Script::started();
        script.until(50.0);
        script.receive("10.0.0.9", &general());
        script.receive("0.0.0.0", &general());
        assert!(script.querier.is_elected(), "a higher address, and a switch");
        script.receive("10.0.0.1", &general());
        assert!(!script.querier.is_elected());
        assert_eq!(script.until(304.9), []);
        assert_eq!(script.until(305.0), [(305.0, None)]);
        assert!(script.querier.is_elected());
    }

    #[test]
    fn while_another_one_queries_its_group_queries_shorten_the_time_of_the_group() {
        let mut script = Script::started();
        script.until(50.0);
        script.record(RecordKind::ToExclude, &[]);
        script.receive("10.0.0.1", &general());
        script.record(RecordKind::ToInclude, &[]);
        assert_eq!(script.until(55.0), [], "the other one asks");
        let asked = query(&script.settings, Some(ip("239.1.1.1")), seconds(1.0));
        script.receive("10.0.0.1", &asked);
        script.until(56.9);
        assert_eq!(script.groups(), 1);
        script.until(57.0);
        assert_eq!(script.groups(), 0);
    }

    #[test]
    fn a_querier_that_finds_a_lower_address_stops_to_ask_for_last_members() {
        let mut script = Script::started();
        script.until(50.0);
        script.record(RecordKind::ToExclude, &[]);
        script.record(RecordKind::ToInclude, &[]);
        assert_eq!(script.until(50.5).len(), 1);
        script.receive("10.0.0.1", &general());
        assert_eq!(script.until(60.0), [], "the second query is the other one's");
    }

    #[test]
    fn groups_are_looked_at_only_when_one_of_them_may_have_a_timer() {
        let mut script = Script::started();
        script.until(50.0);
        script.record(RecordKind::IsExclude, &[]);
        let until = seconds(50.0 + 260.0);
        assert_eq!(script.querier.earliest, Some(until));
        script.until(100.0);
        script.record(RecordKind::IsExclude, &[]);
        assert_eq!(script.querier.earliest, Some(until), "too early, but one look corrects it");
        script.until(310.0);
        assert_eq!((script.querier.earliest, script.groups()), (Some(seconds(360.0)), 1));
        script.until(360.0);
        assert_eq!((script.querier.earliest, script.groups()), (None, 0));
    }

    #[test]
    fn the_group_of_all_hosts_has_no_members() {
        let mut script = Script::started();
        let group = ip("224.0.0.1");
        script.receive("10.0.0.9", &GroupMessage::Report { version: GroupVersion::Two, group });
        assert_eq!(script.groups(), 0);
    }
}
