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

    /// How long a group has members after a report (section 8.4), and how long a host of an older
    /// version counts as present after one (section 8.13).
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
    /// Robustness variable and query interval of the other querier, if its queries have them.
    adopted: (Option<u8>, Option<Nanos>),
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
    /// Until when hosts of versions 1 and 2 count as present (section 7.3.2).
    older: [Nanos; 2],
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
            (self.other, self.adopted) = (false, (None, None));
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
                // A member has answered: other routers must not end the group (the S flag of
                // RFC 3376 section 6.6.3.1).
                let suppress = members.until > now + settings.times(settings.last_member);
                out.push(GroupMessage::Query(Query {
                    suppress,
                    ..query_of(settings, Some(*group), settings.last_member)
                }));
            }
        }
        let due = |of: &Members| if of.queries > 0 { of.next.min(of.until) } else { of.until };
        self.earliest = self.groups.values().map(due).min();
    }

    /// The settings of the querier that is present: others adopt its values (RFC 3376 sections
    /// 4.1.6 and 4.1.7), because groups would otherwise end between two of its queries.
    fn in_use(&self, settings: &QuerierSettings) -> QuerierSettings {
        let (robustness, interval) = self.adopted;
        QuerierSettings {
            robustness: robustness.unwrap_or(settings.robustness),
            query_interval: interval.unwrap_or(settings.query_interval),
            ..*settings
        }
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
                self.adopted = (
                    Some(query.robustness).filter(|robustness| *robustness > 0),
                    query.interval.filter(|interval| *interval > Nanos::ZERO),
                );
                let settings = &self.in_use(settings);
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
            GroupMessage::Report { version, group } => {
                self.report(now, *group, *version, settings);
            }
            GroupMessage::Leave(group) => self.leave(now, *group, settings),
            GroupMessage::Records(records) => {
                for Record { kind, group, sources } in records {
                    use RecordKind::{Allow, Block, IsExclude, IsInclude, ToExclude, ToInclude};
                    match (kind, sources.is_empty()) {
                        (IsExclude | ToExclude, _) | (IsInclude | ToInclude | Allow, false) => {
                            self.report(now, *group, GroupVersion::Three, settings);
                        }
                        (ToInclude, true) => self.leave(now, *group, settings),
                        // Other hosts may want the sources that one blocks. A host of an older
                        // version wants all of them.
                        (Block, false) if !self.has_older(now, *group) => {
                            self.leave(now, *group, settings);
                        }
                        (IsInclude | Allow, true) | (Block, _) => {}
                    }
                }
            }
        }
    }

    /// Whether a host of an older version counts as present in the group.
    fn has_older(&self, now: Nanos, group: IpAddr) -> bool {
        let older = self.groups.get(&group).map(|members| members.older);
        older.is_some_and(|older| older.iter().any(|until| now < *until))
    }

    fn report(
        &mut self,
        now: Nanos,
        group: IpAddr,
        version: GroupVersion,
        settings: &QuerierSettings,
    ) {
        if !is_reported(group) {
            return;
        }
        if self.groups.len() >= MOST && !self.groups.contains_key(&group) {
            self.too_many += 1;
            return;
        }
        let until = now + self.in_use(settings).membership();
        let none = Members { until, queries: 0, next: now, older: [Nanos::ZERO; 2] };
        let before = self.groups.get(&group).copied().unwrap_or(none);
        let mut older = before.older;
        match version {
            GroupVersion::One => older[0] = until,
            GroupVersion::Two => older[1] = until,
            GroupVersion::Three => {}
        }
        // An answer ends the queries of version 2 (RFC 2236 section 7), and not those of version 3,
        // which other members answer as well.
        let is_over = settings.version != GroupVersion::Three;
        let queries = if is_over { 0 } else { before.queries };
        self.groups.insert(group, Members { until, queries, older, ..before });
        self.await_group(until);
    }

    /// Asks whether the group has other members.
    fn leave(&mut self, now: Nanos, group: IpAddr, settings: &QuerierSettings) {
        let Some(members) = self.groups.get_mut(&group) else { return };
        let left = settings.times(settings.last_member);
        // Queries are on their way, and no member has answered since.
        let is_asked = members.queries > 0 && members.until <= now + left;
        if self.other || is_asked {
            return;
        }
        // Hosts of version 1 do not know queries for a group, so they would not keep it (RFC 2236
        // section 4, RFC 3376 section 7.3.2).
        if settings.version == GroupVersion::One || now < members.older[0] {
            return;
        }
        (members.queries, members.next) = (settings.robustness.max(1), now);
        members.until = members.until.min(now + left);
        self.await_group(now);
    }
}

fn query(settings: &QuerierSettings, group: Option<IpAddr>, response: Nanos) -> GroupMessage {
    GroupMessage::Query(query_of(settings, group, response))
}

fn query_of(settings: &QuerierSettings, group: Option<IpAddr>, response: Nanos) -> Query {
    let newest = settings.version == GroupVersion::Three;
    Query {
        version: settings.version,
        max_response: response,
        group,
        sources: Vec::new(),
        suppress: false,
        robustness: if newest { settings.robustness } else { 0 },
        interval: newest.then_some(settings.query_interval),
    }
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
            self.queries(end).into_iter().map(|(at, query)| (at, query.group)).collect()
        }

        fn queries(&mut self, end: f64) -> Vec<(f64, Query)> {
            let mut sent = Vec::new();
            while let Some(due) = self.querier.due().filter(|due| *due <= seconds(end)) {
                let mut out = Vec::new();
                self.querier.timer(due, &self.settings, &mut out);
                for message in out {
                    let GroupMessage::Query(query) = message else { panic!("{message:?}") };
                    sent.push((due.as_secs_f64(), query));
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
        for version in [GroupVersion::Two, GroupVersion::Three] {
            let mut script = Script::started();
            script.settings.version = version;
            script.until(50.0);
            script.record(RecordKind::ToExclude, &[]);
            script.record(RecordKind::ToInclude, &[]);
            let first = script.queries(50.5);
            assert_eq!((first.len(), first[0].1.suppress), (1, false));
            script.record(RecordKind::IsExclude, &[]);
            // The second query of version 3 has the S flag; version 2 sends none.
            let second: Vec<_> = script.queries(100.0);
            let flags: Vec<_> = second.iter().map(|(at, query)| (*at, query.suppress)).collect();
            let expected = if version == GroupVersion::Three { vec![(51.0, true)] } else { vec![] };
            assert_eq!((flags, script.groups()), (expected, 1));
            script.until(310.4);
            assert_eq!(script.groups(), 1, "260 s after the answer");
            script.until(310.5);
            assert_eq!(script.groups(), 0);
        }
    }

    #[test]
    fn a_leave_after_an_answer_is_a_question_again() {
        let mut script = Script::started();
        script.until(50.0);
        script.record(RecordKind::ToExclude, &[]);
        script.record(RecordKind::ToInclude, &[]);
        script.until(50.25);
        script.record(RecordKind::IsExclude, &[]);
        script.record(RecordKind::ToInclude, &[]);
        let asked = [(50.25, Some(ip(GROUP))), (51.25, Some(ip(GROUP)))];
        assert_eq!(script.until(52.2), asked, "two queries from now on");
        assert_eq!(script.groups(), 1);
        script.until(52.25);
        assert_eq!(script.groups(), 0);
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

    const GROUP: &str = "239.1.1.1";

    /// A query of the querier with a lower address.
    fn of_other(group: Option<&str>, response: f64) -> Query {
        let settings = QuerierSettings::default();
        match query(&settings, group.map(ip), seconds(response)) {
            GroupMessage::Query(query) => query,
            message => panic!("{message:?}"),
        }
    }

    #[test]
    fn a_host_of_version_1_keeps_its_group_for_260_seconds_whatever_other_hosts_leave() {
        let mut script = Script::started();
        script.until(50.0);
        script.receive(
            "10.0.0.8",
            &GroupMessage::Report { version: GroupVersion::One, group: ip(GROUP) },
        );
        for at in [60.0, 309.9] {
            script.until(at);
            script.record(RecordKind::IsExclude, &[]);
            script.receive("10.0.0.9", &GroupMessage::Leave(ip(GROUP)));
            script.record(RecordKind::ToInclude, &[]);
            script.record(RecordKind::Block, &["10.0.0.1"]);
            assert_eq!(script.until(at + 0.05), [], "at {at} s");
        }
        script.until(310.0);
        script.record(RecordKind::ToInclude, &[]);
        let asked = [(310.0, Some(ip(GROUP))), (311.0, Some(ip(GROUP)))];
        assert_eq!((script.until(312.0), script.groups()), (asked.to_vec(), 0));
    }

    #[test]
    fn a_host_of_version_2_wants_all_sources_for_260_seconds_and_can_leave() {
        let mut script = Script::started();
        script.until(50.0);
        let report = GroupMessage::Report { version: GroupVersion::Two, group: ip(GROUP) };
        script.receive("10.0.0.8", &report);
        script.until(309.9);
        script.record(RecordKind::IsExclude, &[]);
        script.record(RecordKind::Block, &["10.0.0.1"]);
        assert_eq!(script.until(309.95), [], "a source that another host blocks");
        script.until(310.0);
        script.record(RecordKind::Block, &["10.0.0.1"]);
        assert_eq!(script.until(312.0).len(), 2);
        script.receive("10.0.0.8", &report);
        script.receive("10.0.0.8", &GroupMessage::Leave(ip(GROUP)));
        assert_eq!(script.until(314.0).len(), 2, "but its own leave counts");
        assert_eq!(script.groups(), 0);
    }

    #[test]
    fn each_report_of_an_older_version_restarts_its_time() {
        let mut script = Script::started();
        let report = GroupMessage::Report { version: GroupVersion::One, group: ip(GROUP) };
        for at in [50.0, 250.0] {
            script.until(at);
            script.receive("10.0.0.8", &report);
        }
        script.until(509.0);
        script.receive("10.0.0.8", &GroupMessage::Leave(ip(GROUP)));
        assert_eq!((script.until(509.9), script.groups()), (vec![], 1));
        script.until(510.0);
        assert_eq!(script.groups(), 0, "260 s without a report");
    }

    #[test]
    fn a_querier_of_version_1_asks_for_no_last_member() {
        let mut script = Script::started();
        script.settings.version = GroupVersion::One;
        script.until(50.0);
        let report = GroupMessage::Report { version: GroupVersion::Two, group: ip(GROUP) };
        script.receive("10.0.0.8", &report);
        script.receive("10.0.0.8", &GroupMessage::Leave(ip(GROUP)));
        assert_eq!((script.until(60.0), script.groups()), (vec![], 1));
    }

    #[test]
    fn values_of_the_other_querier_are_adopted_until_it_is_gone() {
        let mut script = Script::started();
        script.until(50.0);
        let other = Query { robustness: 3, interval: Some(seconds(300.0)), ..of_other(None, 10.0) };
        script.receive("10.0.0.1", &GroupMessage::Query(other));
        script.record(RecordKind::IsExclude, &[]);
        assert_eq!(script.until(954.9), [], "3 times 300 s and 5 s");
        assert_eq!(script.groups(), 1, "3 times 300 s and 10 s");
        assert_eq!(script.until(955.0), [(955.0, None)]);
        // Its own values from now on, without the queries of a start.
        assert_eq!(script.until(1080.0), [(1080.0, None)]);
        assert_eq!(script.groups(), 0);
        script.record(RecordKind::IsExclude, &[]);
        script.until(1340.0);
        assert_eq!(script.groups(), 0, "260 s");
    }

    #[test]
    fn values_of_zero_and_those_of_older_versions_are_not_adopted() {
        for (robustness, interval) in [(0, Some(Nanos::ZERO)), (0, None)] {
            let mut script = Script::started();
            script.until(50.0);
            let other = Query { robustness, interval, ..of_other(None, 10.0) };
            script.receive("10.0.0.1", &GroupMessage::Query(other));
            assert_eq!(script.until(304.9), []);
            assert_eq!(script.until(305.0), [(305.0, None)]);
        }
    }

    #[test]
    fn each_query_of_the_other_querier_restarts_its_time() {
        let mut script = Script::started();
        for at in [10.0, 135.0, 260.0] {
            script.until(at);
            script.receive("10.0.0.1", &general());
            assert!(!script.querier.is_elected());
        }
        assert_eq!(script.until(514.9), []);
        assert_eq!(script.until(515.0), [(515.0, None)], "255 s after the last one");
    }

    #[test]
    fn queries_of_the_other_with_the_s_flag_or_sources_shorten_no_time() {
        let suppressed = Query { suppress: true, ..of_other(Some(GROUP), 1.0) };
        let of_source = Query { sources: vec![ip("10.0.0.1")], ..of_other(Some(GROUP), 1.0) };
        for (query, groups) in [(suppressed, 1), (of_source, 1), (of_other(Some(GROUP), 1.0), 0)] {
            let mut script = Script::started();
            script.until(50.0);
            script.record(RecordKind::IsExclude, &[]);
            script.receive("10.0.0.1", &GroupMessage::Query(query));
            script.until(52.0);
            assert_eq!(script.groups(), groups);
        }
    }

    #[test]
    fn the_last_member_query_interval_and_count_are_settable() {
        let mut script = Script::started();
        (script.settings.last_member, script.settings.robustness) = (seconds(0.5), 3);
        script.until(50.0);
        script.record(RecordKind::IsExclude, &[]);
        script.record(RecordKind::ToInclude, &[]);
        let times: Vec<f64> = script.until(51.4).iter().map(|sent| sent.0).collect();
        assert_eq!((times, script.groups()), (vec![50.0, 50.5, 51.0], 1));
        script.until(51.5);
        assert_eq!(script.groups(), 0, "last member query time");
    }

    #[test]
    fn a_second_leave_during_the_last_member_query_time_does_not_prolong_it() {
        let mut script = Script::started();
        script.until(50.0);
        script.record(RecordKind::IsExclude, &[]);
        script.record(RecordKind::ToInclude, &[]);
        script.until(51.5);
        script.record(RecordKind::ToInclude, &[]);
        script.until(52.0);
        assert_eq!(script.groups(), 0);
    }

    #[test]
    fn the_group_membership_interval_follows_from_the_settings() {
        let mut script = Script::default();
        script.settings.robustness = 3;
        script.settings.query_interval = seconds(4.0);
        script.settings.query_response = seconds(2.0);
        script.querier.start(seconds(0.0), &script.settings);
        script.record(RecordKind::IsExclude, &[]);
        script.until(13.9);
        assert_eq!(script.groups(), 1, "3 times 4 s and 2 s");
        script.until(14.0);
        assert_eq!(script.groups(), 0);
    }

    #[test]
    fn listeners_of_mld_have_the_same_times() {
        for version in [GroupVersion::Two, GroupVersion::Three] {
            let mut script = Script::started();
            let group = ip("ff3e::1");
            script.until(1.0);
            script.receive("fe80::9", &GroupMessage::Report { version, group });
            script.until(260.9);
            assert_eq!(script.groups(), 1, "multicast listener interval");
            script.receive("fe80::9", &GroupMessage::Leave(group));
            let asked = [(260.9, Some(group)), (261.9, Some(group))];
            // The group ends before the last listener query time does.
            assert_eq!(script.until(262.9), asked[..1]);
            script.receive("fe80::9", &GroupMessage::Report { version, group });
            script.receive("fe80::9", &GroupMessage::Leave(group));
            let times: Vec<f64> = script.until(264.8).iter().map(|sent| sent.0).collect();
            assert_eq!((times, script.groups()), (vec![262.9, 263.9], 1));
            script.until(264.9);
            assert_eq!(script.groups(), 0);
        }
    }
}
