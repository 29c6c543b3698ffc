//! Each rule of the RFCs that has a timer, as a script in virtual time.

use squall_units::SplitMix64;

use super::*;
use RecordKind::{Allow, Block, IsExclude, IsInclude, ToExclude, ToInclude};

const START: Nanos = Nanos(100_000_000_000);
const GROUP: &str = "239.1.1.1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9).round() as u64)
}

fn only(sources: &[&str]) -> SourceFilter {
    SourceFilter { exclude: false, sources: sources.iter().map(|text| ip(text)).collect() }
}

fn but(sources: &[&str]) -> SourceFilter {
    SourceFilter { exclude: true, ..only(sources) }
}

/// A host in virtual time, and all messages with their times in seconds from the start.
struct Script {
    host: Memberships,
    timers: MembershipTimers,
    now: Nanos,
    random: SplitMix64,
    sent: Vec<(f64, GroupMessage)>,
}

impl Script {
    fn new(version: GroupVersion) -> Self {
        Self::seeded(version, 1)
    }

    fn seeded(version: GroupVersion, seed: u64) -> Self {
        let timers = MembershipTimers::of(version);
        let random = SplitMix64(seed);
        Self { host: Memberships::default(), timers, now: START, random, sent: Vec::new() }
    }

    fn with<T>(
        &mut self,
        act: impl FnOnce(&mut Memberships, &MembershipContext<'_>, &mut Vec<GroupMessage>) -> T,
    ) -> T {
        let chance = self.random.draw();
        let cx = MembershipContext { now: self.now, chance, timers: &self.timers };
        let mut out = Vec::new();
        let value = act(&mut self.host, &cx, &mut out);
        let at = (self.now.saturating_sub(START)).as_secs_f64();
        self.sent.extend(out.into_iter().map(|message| (at, message)));
        value
    }

    fn listen(&mut self, group: &str, filter: &SourceFilter) {
        self.with(|host, cx, out| host.listen(cx, [ip(group)], filter, out));
    }

    fn receive(&mut self, message: &GroupMessage) {
        self.with(|host, cx, _| host.receive(cx, message));
    }

    /// A query of this version with a maximum response time in seconds.
    fn query(&mut self, version: GroupVersion, response: f64, group: Option<&str>, from: &[&str]) {
        self.receive(&GroupMessage::Query(Query {
            version,
            max_response: seconds(response),
            group: group.map(ip),
            sources: from.iter().map(|text| ip(text)).collect(),
            suppress: false,
            robustness: 2,
            interval: None,
        }));
    }

    /// Runs all timers up to a time in seconds from the start, each exactly when it is due.
    fn until(&mut self, at: f64) {
        let end = START + seconds(at);
        while let Some(due) = self.host.due().filter(|due| *due <= end) {
            assert!(due >= self.now, "a timer in the past");
            let sent = self.sent.len();
            if due > self.now {
                self.now = due.saturating_sub(Nanos(1));
                self.with(|host, cx, out| host.timer(cx, out));
                assert_eq!(self.sent.len(), sent, "sent before it was due");
            }
            self.now = due;
            self.with(|host, cx, out| host.timer(cx, out));
        }
        self.now = end;
    }

    /// The messages since the last call.
    fn taken(&mut self) -> Vec<(f64, GroupMessage)> {
        std::mem::take(&mut self.sent)
    }

    fn records(&mut self) -> Vec<(f64, Vec<Record>)> {
        let records = |(at, message)| match message {
            GroupMessage::Records(records) => (at, records),
            other => panic!("{other:?} is no report of version 3"),
        };
        self.taken().into_iter().map(records).collect()
    }
}

fn record(kind: RecordKind, group: &str, sources: &[&str]) -> Record {
    Record { kind, group: ip(group), sources: sources.iter().map(|text| ip(text)).collect() }
}

fn report(version: GroupVersion) -> GroupMessage {
    GroupMessage::Report { version, group: ip(GROUP) }
}

#[test]
fn v3_a_join_is_reported_at_once_and_repeated_within_the_unsolicited_interval() {
    let mut latest = 0.0f64;
    for seed in 0..50 {
        let mut script = Script::seeded(GroupVersion::Three, seed);
        script.listen(GROUP, &SourceFilter::any());
        script.until(100.0);
        let sent = script.records();
        let join = vec![record(ToExclude, GROUP, &[])];
        assert_eq!(sent.iter().map(|sent| &sent.1).collect::<Vec<_>>(), [&join, &join]);
        assert_eq!(sent[0].0, 0.0);
        assert!((0.0..=1.0).contains(&sent[1].0), "{sent:?}");
        latest = latest.max(sent[1].0);
    }
    assert!(latest > 0.5, "the interval is random: {latest}");
}

#[test]
fn v3_the_robustness_variable_is_the_number_of_reports() {
    for robustness in 1..=7 {
        let mut script = Script::new(GroupVersion::Three);
        script.timers.robustness = robustness;
        script.listen(GROUP, &SourceFilter::any());
        script.until(100.0);
        let sent = script.records();
        assert_eq!(sent.len(), usize::from(robustness));
        assert!(sent.windows(2).all(|two| two[1].0 - two[0].0 <= 1.0 + 1e-9), "{sent:?}");
        assert!(!script.host.is_changing());
    }
}

#[test]
fn v3_the_unsolicited_interval_is_settable() {
    let mut script = Script::new(GroupVersion::Three);
    script.timers.unsolicited = seconds(0.001);
    script.listen(GROUP, &SourceFilter::any());
    script.until(0.001);
    assert_eq!(script.records().len(), 2);
}

#[test]
fn v3_a_leave_is_repeated_like_a_join_and_then_forgotten() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &SourceFilter::any());
    script.until(10.0);
    script.taken();
    script.listen(GROUP, &SourceFilter::default());
    assert_eq!(script.host.members(), 0);
    script.until(20.0);
    let sent = script.records();
    let leave = vec![record(ToInclude, GROUP, &[])];
    assert_eq!(sent.iter().map(|sent| &sent.1).collect::<Vec<_>>(), [&leave, &leave]);
    assert!(script.host.groups.is_empty());
}

#[test]
fn v3_a_change_during_repetitions_is_sent_at_once_and_restarts_them() {
    let mut script = Script::new(GroupVersion::Three);
    script.timers.robustness = 3;
    script.timers.unsolicited = seconds(100.0);
    script.listen(GROUP, &SourceFilter::any());
    script.listen(GROUP, &SourceFilter::default());
    script.until(1000.0);
    let kinds: Vec<_> = script.records().iter().map(|(_, records)| records[0].kind).collect();
    // One of the join, and three of the leave, which replaces the other two of the join.
    assert_eq!(kinds, [ToExclude, ToInclude, ToInclude, ToInclude]);
}

#[test]
fn v3_new_sources_are_allowed_and_old_ones_blocked() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &only(&["10.0.0.1", "10.0.0.2"]));
    assert_eq!(
        script.records()[0].1,
        [record(Allow, GROUP, &["10.0.0.1", "10.0.0.2"])],
        "from INCLUDE {{}}, RFC 3376 section 5.1"
    );
    script.until(10.0);
    script.taken();
    script.listen(GROUP, &only(&["10.0.0.2", "10.0.0.3"]));
    let change = [record(Allow, GROUP, &["10.0.0.3"]), record(Block, GROUP, &["10.0.0.1"])];
    script.until(20.0);
    let sent = script.records();
    assert_eq!(sent.iter().map(|sent| &sent.1[..]).collect::<Vec<_>>(), [&change[..]; 2]);
}

#[test]
fn v3_in_exclude_mode_new_sources_are_blocked() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &but(&["10.0.0.1"]));
    assert_eq!(script.records()[0].1, [record(ToExclude, GROUP, &["10.0.0.1"])]);
    script.until(10.0);
    script.taken();
    script.listen(GROUP, &but(&["10.0.0.2"]));
    let sent = script.records();
    assert_eq!(
        sent[0].1,
        [record(Allow, GROUP, &["10.0.0.1"]), record(Block, GROUP, &["10.0.0.2"])]
    );
}

#[test]
fn v3_each_changed_source_has_its_own_repetitions() {
    let mut script = Script::new(GroupVersion::Three);
    script.timers.unsolicited = seconds(100.0);
    script.listen(GROUP, &only(&["10.0.0.1"]));
    script.listen(GROUP, &only(&["10.0.0.1", "10.0.0.2"]));
    script.until(1000.0);
    let allowed: Vec<usize> =
        script.records().iter().map(|(_, records)| records[0].sources.len()).collect();
    // The second report has both, after which the first source has been sent twice.
    assert_eq!(allowed, [1, 2, 1]);
}

#[test]
fn v3_source_changes_during_a_change_of_mode_are_part_of_it() {
    let mut script = Script::new(GroupVersion::Three);
    script.timers.unsolicited = seconds(100.0);
    script.listen(GROUP, &SourceFilter::any());
    script.listen(GROUP, &but(&["10.0.0.9"]));
    script.until(1000.0);
    let sent = script.records();
    assert_eq!(sent[0].1, [record(ToExclude, GROUP, &[])]);
    assert_eq!(sent[1].1, [record(ToExclude, GROUP, &["10.0.0.9"])]);
    assert_eq!(sent[2].1, [record(Block, GROUP, &["10.0.0.9"])], "its second report");
    assert_eq!(sent.len(), 3);
}

#[test]
fn v3_a_general_query_is_answered_once_for_all_groups_within_its_response_time() {
    let mut latest = 0.0f64;
    for seed in 0..50 {
        let mut script = Script::seeded(GroupVersion::Three, seed);
        script.listen("239.1.1.1", &SourceFilter::any());
        script.listen("232.1.1.1", &only(&["10.0.0.1"]));
        script.until(10.0);
        script.taken();
        script.query(GroupVersion::Three, 5.0, None, &[]);
        script.until(100.0);
        let sent = script.records();
        assert_eq!(
            sent[0].1,
            [record(IsInclude, "232.1.1.1", &["10.0.0.1"]), record(IsExclude, "239.1.1.1", &[])]
        );
        assert_eq!(sent.len(), 1);
        assert!((10.0..=15.0).contains(&sent[0].0), "{sent:?}");
        latest = latest.max(sent[0].0);
    }
    assert!(latest > 13.0, "the delay is random: {latest}");
}

#[test]
fn v3_a_group_query_is_answered_for_that_group_alone() {
    let mut script = Script::new(GroupVersion::Three);
    for group in ["239.1.1.1", "239.1.1.2"] {
        script.listen(group, &SourceFilter::any());
    }
    script.until(10.0);
    script.taken();
    script.query(GroupVersion::Three, 1.0, Some("239.1.1.2"), &[]);
    script.query(GroupVersion::Three, 1.0, Some("239.1.1.3"), &[]);
    script.until(100.0);
    let sent = script.records();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1, [record(IsExclude, "239.1.1.2", &[])]);
    assert!(sent[0].0 <= 11.0);
}

#[test]
fn v3_a_source_query_is_answered_with_the_wanted_sources() {
    let answers = |filter: &SourceFilter, asked: &[&str]| {
        let mut script = Script::new(GroupVersion::Three);
        script.listen(GROUP, filter);
        script.until(10.0);
        script.taken();
        script.query(GroupVersion::Three, 1.0, Some(GROUP), asked);
        script.until(100.0);
        script.records().into_iter().flat_map(|sent| sent.1).collect::<Vec<_>>()
    };
    let asked = ["10.0.0.1", "10.0.0.2"];
    assert_eq!(answers(&only(&["10.0.0.1"]), &asked), [record(IsInclude, GROUP, &["10.0.0.1"])]);
    assert_eq!(answers(&but(&["10.0.0.1"]), &asked), [record(IsInclude, GROUP, &["10.0.0.2"])]);
    assert_eq!(answers(&SourceFilter::any(), &asked), [record(IsInclude, GROUP, &asked)]);
    assert_eq!(answers(&only(&["10.0.0.9"]), &asked), [], "no source is wanted");
}

/// Two queries, the second 1 s after the first, and the answers.
fn two_queries(
    first: (f64, Option<&str>, &[&str]),
    then: (f64, Option<&str>, &[&str]),
) -> Vec<(f64, Vec<Record>)> {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &SourceFilter::any());
    script.until(10.0);
    script.taken();
    script.query(GroupVersion::Three, first.0, first.1, first.2);
    // The first answer comes in exactly 5 s.
    let due = script.now + seconds(5.0);
    match first.1 {
        None => script.host.general = Some(due),
        Some(group) => {
            script.host.groups.get_mut(&ip(group)).unwrap().due = Some(due);
            script.host.answers = [Reverse((due, ip(group)))].into();
        }
    }
    script.until(11.0);
    script.query(GroupVersion::Three, then.0, then.1, then.2);
    script.until(100.0);
    script.records()
}

#[test]
fn v3_rule_1_an_earlier_general_answer_is_enough() {
    let sent = two_queries((10.0, None, &[]), (1000.0, Some(GROUP), &[]));
    assert_eq!(sent, [(15.0, vec![record(IsExclude, GROUP, &[])])]);
}

#[test]
fn v3_rule_2_a_general_query_replaces_a_later_general_answer() {
    let sent = two_queries((10.0, None, &[]), (0.1, None, &[]));
    assert_eq!(sent.len(), 1);
    assert!((11.0..=11.1).contains(&sent[0].0), "{sent:?}");
}

#[test]
fn v3_rule_2_a_general_query_leaves_the_answer_for_a_group() {
    let sent = two_queries((10.0, Some(GROUP), &[]), (0.1, None, &[]));
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert_eq!(sent[1].0, 15.0);
}

#[test]
fn v3_rule_3_a_group_query_does_not_wait_for_a_later_general_answer() {
    let sent = two_queries((10.0, None, &[]), (0.1, Some(GROUP), &[]));
    assert_eq!(sent.len(), 2);
    assert!((11.0..=11.1).contains(&sent[0].0), "{sent:?}");
}

#[test]
fn v3_rule_4_a_group_query_takes_the_place_of_a_source_query() {
    let sent = two_queries((10.0, Some(GROUP), &["10.0.0.1"]), (1000.0, Some(GROUP), &[]));
    assert_eq!(sent, [(15.0, vec![record(IsExclude, GROUP, &[])])], "the earlier time");
    let sent = two_queries((10.0, Some(GROUP), &[]), (0.1, Some(GROUP), &["10.0.0.1"]));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1, [record(IsExclude, GROUP, &[])]);
    assert!(sent[0].0 <= 11.1);
}

#[test]
fn v3_rule_5_sources_of_two_queries_are_answered_together() {
    let sent =
        two_queries((10.0, Some(GROUP), &["10.0.0.1"]), (1000.0, Some(GROUP), &["10.0.0.2"]));
    assert_eq!(sent, [(15.0, vec![record(IsInclude, GROUP, &["10.0.0.1", "10.0.0.2"])])]);
}

#[test]
fn v3_sources_of_many_queries_do_not_fill_memory() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &SourceFilter::any());
    script.until(10.0);
    script.taken();
    for i in 0..1000 {
        let source = format!("10.0.{}.{}", i / 256, i % 256);
        script.query(GroupVersion::Three, 1000.0, Some(GROUP), &[&source]);
        assert!(script.host.groups[&ip(GROUP)].queried.len() <= MOST_QUERIED);
    }
    script.until(2000.0);
    assert_eq!(script.records()[0].1, [record(IsExclude, GROUP, &[])]);
}

#[test]
fn v3_queries_that_change_nothing_do_not_fill_memory() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &SourceFilter::any());
    for _ in 0..1000 {
        script.query(GroupVersion::Three, 10.0, Some(GROUP), &[]);
    }
    // Each answer that comes before the others is an entry.
    let answers = script.host.answers.len();
    assert!(answers < 50, "{answers} pending answers");
}

#[test]
fn v3_other_hosts_reports_suppress_nothing() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &SourceFilter::any());
    script.until(10.0);
    script.taken();
    script.query(GroupVersion::Three, 1.0, None, &[]);
    script.receive(&report(GroupVersion::Two));
    script.until(100.0);
    assert_eq!(script.records().len(), 1);
}

#[test]
fn v3_ten_thousand_groups_are_packed_into_reports_that_fit() {
    let groups = |first: u32| (0..10_000).map(move |i| IpAddr::from((first + i).to_be_bytes()));
    let mut script = Script::new(GroupVersion::Three);
    script.with(|host, cx, out| {
        host.listen(cx, groups(0xef01_0000), &SourceFilter::any(), out);
    });
    let sent = script.records();
    let records: usize = sent.iter().map(|(_, records)| records.len()).sum();
    assert_eq!((records, script.host.members()), (10_000, 10_000));
    let most = sent.iter().map(|(_, records)| records.len()).max().unwrap();
    assert_eq!((sent.len(), most), (56, ROOM / 8), "8 octets each");
    let mut packet = Vec::new();
    crate::igmp::write(
        [10, 0, 0, 1].into(),
        &GroupMessage::Records(sent[0].1.clone()),
        &mut packet,
    );
    assert!(packet.len() <= 1500, "{}", packet.len());
}

#[test]
fn v3_groups_of_ipv6_are_packed_into_frames_too() {
    let groups = (0..500u16).map(|i| IpAddr::from([0xff3e, 0, 0, 0, 0, 0, 0, i + 1]));
    let mut script = Script::new(GroupVersion::Three);
    let sources: Vec<String> = (1..=64).map(|i| format!("2001:db8::{i:x}")).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    script.with(|host, cx, out| host.listen(cx, groups, &only(&sources), out));
    for (_, records) in script.records() {
        let mut packet = Vec::new();
        let source = "fe80::1".parse().unwrap();
        crate::mld::write(source, &GroupMessage::Records(records), &mut packet);
        assert!(packet.len() <= 1500, "{}", packet.len());
    }
}

#[test]
fn v3_a_query_of_version_2_switches_to_reports_of_version_2_for_a_time() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &SourceFilter::any());
    script.until(10.0);
    script.taken();
    script.query(GroupVersion::Two, 10.0, None, &[]);
    script.until(20.0);
    let sent = script.taken();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1, report(GroupVersion::Two));
    // 10 s + 260 s: the older querier counts as present until then.
    script.until(269.9);
    script.query(GroupVersion::Three, 0.05, None, &[]);
    script.until(269.99);
    assert_eq!(script.taken()[0].1, report(GroupVersion::Two));
    script.until(270.0);
    script.query(GroupVersion::Three, 1.0, None, &[]);
    script.until(280.0);
    assert_eq!(script.records()[0].1, [record(IsExclude, GROUP, &[])]);
}

#[test]
fn v3_the_time_of_an_older_querier_is_settable_and_restarts_with_each_query() {
    let mut script = Script::new(GroupVersion::Three);
    script.timers.older_querier = seconds(5.0);
    script.query(GroupVersion::Two, 1.0, None, &[]);
    script.until(4.0);
    script.query(GroupVersion::Two, 1.0, None, &[]);
    script.until(8.9);
    script.listen(GROUP, &SourceFilter::any());
    assert_eq!(script.taken()[0].1, report(GroupVersion::Two));
    script.until(9.0);
    script.listen("239.1.1.2", &SourceFilter::any());
    assert_eq!(script.records()[0].1, [record(ToExclude, "239.1.1.2", &[])]);
}

#[test]
fn v3_a_query_of_version_1_counts_more_than_one_of_version_2() {
    let mut script = Script::new(GroupVersion::Three);
    script.query(GroupVersion::One, 10.0, None, &[]);
    script.query(GroupVersion::Two, 10.0, None, &[]);
    script.listen(GROUP, &SourceFilter::any());
    assert_eq!(script.taken()[0].1, report(GroupVersion::One));
    script.listen(GROUP, &SourceFilter::default());
    assert_eq!(script.taken(), [], "version 1 leaves silently");
}

#[test]
fn v3_a_group_query_of_version_2_does_not_change_the_version() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &SourceFilter::any());
    script.until(10.0);
    script.taken();
    script.query(GroupVersion::Two, 1.0, Some(GROUP), &[]);
    script.until(20.0);
    assert_eq!(script.records()[0].1, [record(IsExclude, GROUP, &[])]);
}

#[test]
fn v3_a_change_of_version_cancels_answers_and_repetitions() {
    let mut script = Script::new(GroupVersion::Three);
    script.timers.unsolicited = seconds(100.0);
    script.listen(GROUP, &SourceFilter::any());
    script.listen("239.1.1.2", &SourceFilter::any());
    script.listen("239.1.1.2", &SourceFilter::default());
    script.query(GroupVersion::Three, 100.0, None, &[]);
    script.taken();
    script.query(GroupVersion::Two, 1.0, None, &[]);
    script.until(200.0);
    let sent = script.taken();
    assert_eq!(sent.len(), 1, "the answer of version 2 alone: {sent:?}");
    assert_eq!(sent[0].1, report(GroupVersion::Two));
}

#[test]
fn v2_a_join_is_reported_at_once_and_repeated_within_10_seconds() {
    let mut latest = 0.0f64;
    for seed in 0..50 {
        let mut script = Script::seeded(GroupVersion::Two, seed);
        script.listen(GROUP, &but(&["10.0.0.1"]));
        script.until(100.0);
        let sent = script.taken();
        assert_eq!(sent.len(), 2);
        assert!(sent.iter().all(|sent| sent.1 == report(GroupVersion::Two)));
        assert!(sent[0].0 == 0.0 && (0.0..=10.0).contains(&sent[1].0), "{sent:?}");
        latest = latest.max(sent[1].0);
    }
    assert!(latest > 5.0, "the interval is random: {latest}");
}

#[test]
fn v2_each_group_has_its_own_random_delay() {
    let mut script = Script::new(GroupVersion::Two);
    let groups: Vec<IpAddr> = (0..100).map(|i| IpAddr::from([239, 2, 0, i])).collect();
    script.with(|host, cx, out| host.listen(cx, groups, &SourceFilter::any(), out));
    script.until(50.0);
    script.taken();
    script.query(GroupVersion::Two, 10.0, None, &[]);
    script.until(100.0);
    let sent = script.taken();
    assert_eq!(sent.len(), 100);
    assert!(sent.iter().all(|(at, _)| (50.0..=60.0).contains(at)));
    let early = sent.iter().filter(|(at, _)| *at < 55.0).count();
    assert!((30..70).contains(&early), "half of them in half of the time, not {early}");
}

#[test]
fn v2_a_running_timer_is_only_shortened() {
    let mut script = Script::new(GroupVersion::Two);
    script.listen(GROUP, &SourceFilter::any());
    script.until(50.0);
    script.taken();
    script.query(GroupVersion::Two, 10.0, Some(GROUP), &[]);
    let first = script.host.due().unwrap();
    script.query(GroupVersion::Two, 20.0, Some(GROUP), &[]);
    assert_eq!(script.host.due(), Some(first), "20 s is more than remains");
    let short = first.saturating_sub(script.now).as_secs_f64() / 2.0;
    script.query(GroupVersion::Two, short, Some(GROUP), &[]);
    assert!(script.host.due().unwrap() < first);
    script.until(100.0);
    assert_eq!(script.taken().len(), 1);
}

#[test]
fn v2_the_report_of_another_host_takes_the_place_of_the_own_one_and_of_the_leave() {
    let mut script = Script::new(GroupVersion::Two);
    script.listen(GROUP, &SourceFilter::any());
    script.until(50.0);
    script.taken();
    script.query(GroupVersion::Two, 10.0, None, &[]);
    script.receive(&report(GroupVersion::Two));
    script.until(100.0);
    assert_eq!(script.taken(), []);
    script.listen(GROUP, &SourceFilter::default());
    assert_eq!(script.taken(), [], "it was not the last to report");
}

#[test]
fn v2_the_report_of_another_host_also_ends_repetitions() {
    let mut script = Script::new(GroupVersion::Two);
    script.timers.robustness = 4;
    script.listen(GROUP, &SourceFilter::any());
    script.receive(&report(GroupVersion::Two));
    script.until(100.0);
    assert_eq!(script.taken().len(), 1);
}

#[test]
fn v2_the_last_to_report_leaves_with_a_message() {
    let mut script = Script::new(GroupVersion::Two);
    script.listen(GROUP, &SourceFilter::any());
    script.until(50.0);
    script.taken();
    // A report while no answer is pending does not change which host was the last to report.
    script.receive(&report(GroupVersion::Two));
    script.listen(GROUP, &SourceFilter::default());
    assert_eq!(script.taken().len(), 1);
    assert_eq!((script.host.members(), script.host.due()), (0, None));
}

#[test]
fn v2_leaving_cancels_a_pending_answer() {
    let mut script = Script::new(GroupVersion::Two);
    script.listen(GROUP, &SourceFilter::any());
    script.until(50.0);
    script.query(GroupVersion::Two, 10.0, None, &[]);
    script.listen(GROUP, &SourceFilter::default());
    script.taken();
    script.until(100.0);
    assert_eq!(script.taken(), []);
}

#[test]
fn v2_a_querier_of_version_1_counts_for_400_seconds() {
    let mut script = Script::new(GroupVersion::Two);
    script.listen(GROUP, &SourceFilter::any());
    script.until(50.0);
    script.taken();
    script.query(GroupVersion::One, 10.0, None, &[]);
    script.until(60.0);
    assert_eq!(script.taken()[0].1, report(GroupVersion::One));
    script.until(449.9);
    script.listen(GROUP, &SourceFilter::default());
    assert_eq!(script.taken(), [], "no leave in version 1");
    script.listen(GROUP, &SourceFilter::any());
    assert_eq!(script.taken()[0].1, report(GroupVersion::One));
    script.until(450.0);
    script.listen(GROUP, &SourceFilter::default());
    assert_eq!(script.taken().last().unwrap().1, GroupMessage::Leave(ip(GROUP)));
}

#[test]
fn v2_a_query_of_version_3_is_one_of_version_2() {
    let mut script = Script::new(GroupVersion::Two);
    script.listen(GROUP, &SourceFilter::any());
    script.until(50.0);
    script.taken();
    script.query(GroupVersion::Three, 1.0, None, &[]);
    script.until(51.0);
    assert_eq!(script.taken()[0].1, report(GroupVersion::Two));
}

#[test]
fn v1_answers_within_10_seconds_whatever_the_query_has() {
    let mut script = Script::new(GroupVersion::One);
    script.listen(GROUP, &SourceFilter::any());
    script.until(50.0);
    script.taken();
    let mut latest = 0.0f64;
    for turn in 0..20 {
        let at = f64::from(turn) * 20.0 + 50.0;
        script.query(GroupVersion::Three, 0.1, None, &[]);
        script.until(at + 20.0);
        let sent = script.taken();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].1, report(GroupVersion::One));
        latest = latest.max(sent[0].0 - at);
    }
    assert!((5.0..=10.0).contains(&latest), "{latest}");
}

#[test]
fn v1_a_join_is_repeated_and_a_leave_is_silent() {
    let mut script = Script::new(GroupVersion::One);
    script.listen(GROUP, &SourceFilter::any());
    script.until(50.0);
    let sent = script.taken();
    assert_eq!(sent.len(), 2);
    assert!(sent[0].0 == 0.0 && sent[1].0 <= 10.0, "{sent:?}");
    script.listen(GROUP, &SourceFilter::default());
    script.until(100.0);
    assert_eq!(script.taken(), []);
}

#[test]
fn v2_robustness_and_unsolicited_interval_are_settable() {
    for robustness in [1, 2, 5] {
        let mut script = Script::new(GroupVersion::Two);
        (script.timers.robustness, script.timers.unsolicited) = (robustness, seconds(0.5));
        script.listen(GROUP, &SourceFilter::any());
        script.until(100.0);
        let sent = script.taken();
        assert_eq!(sent.len(), usize::from(robustness));
        assert!(sent.windows(2).all(|two| two[1].0 - two[0].0 <= 0.5 + 1e-9), "{sent:?}");
    }
}

#[test]
fn v2_a_query_during_the_repetitions_is_answered_in_time() {
    let mut script = Script::new(GroupVersion::Two);
    script.timers.unsolicited = seconds(100.0);
    script.listen(GROUP, &SourceFilter::any());
    script.taken();
    script.query(GroupVersion::Two, 1.0, None, &[]);
    script.until(1.0);
    assert_eq!(script.taken().len(), 1);
}

#[test]
fn v3_a_query_without_a_response_time_is_answered_at_once() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &SourceFilter::any());
    script.until(10.0);
    script.taken();
    script.query(GroupVersion::Three, 0.0, None, &[]);
    script.until(10.0);
    assert_eq!(script.records().len(), 1);
}

#[test]
fn v3_a_leave_cancels_a_pending_answer_for_the_group() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen(GROUP, &SourceFilter::any());
    script.until(10.0);
    script.query(GroupVersion::Three, 100.0, Some(GROUP), &[]);
    script.taken();
    script.listen(GROUP, &SourceFilter::default());
    script.until(500.0);
    let kinds: Vec<_> = script.records().iter().map(|(_, records)| records[0].kind).collect();
    assert_eq!(kinds, [ToInclude, ToInclude]);
}

#[test]
fn mld1_a_listener_reports_at_once_and_again_within_10_seconds_and_ends_with_done() {
    let mut script = Script::new(GroupVersion::Two);
    let group = ip("ff3e::1");
    script.listen("ff3e::1", &SourceFilter::any());
    script.until(50.0);
    let sent = script.taken();
    let report = GroupMessage::Report { version: GroupVersion::Two, group };
    assert!(sent.len() == 2 && sent.iter().all(|one| one.1 == report), "{sent:?}");
    assert!(sent[0].0 == 0.0 && sent[1].0 <= 10.0, "unsolicited report interval: {sent:?}");
    script.listen("ff3e::1", &SourceFilter::default());
    assert_eq!(script.taken()[0].1, GroupMessage::Leave(group));
}

#[test]
fn mld1_a_query_is_answered_within_its_delay_unless_another_listener_was_first() {
    for other in [false, true] {
        let mut script = Script::new(GroupVersion::Two);
        script.listen("ff3e::1", &SourceFilter::any());
        script.until(50.0);
        script.taken();
        script.query(GroupVersion::Two, 3.0, None, &[]);
        if other {
            let (version, group) = (GroupVersion::Two, ip("ff3e::1"));
            script.receive(&GroupMessage::Report { version, group });
        }
        script.until(53.0);
        assert_eq!(script.taken().len(), usize::from(!other));
    }
}

#[test]
fn mld2_a_listener_reports_a_change_robustness_times_within_a_second_each() {
    let mut script = Script::new(GroupVersion::Three);
    script.timers.robustness = 4;
    script.listen("ff3e::1", &only(&["2001:db8::1"]));
    script.until(50.0);
    let sent = script.records();
    let change = [record(Allow, "ff3e::1", &["2001:db8::1"])];
    assert!(sent.len() == 4 && sent.iter().all(|one| one.1 == change), "{sent:?}");
    assert!(sent.windows(2).all(|two| two[1].0 - two[0].0 <= 1.0 + 1e-9), "{sent:?}");
}

#[test]
fn mld2_a_querier_of_mld1_counts_for_260_seconds() {
    let mut script = Script::new(GroupVersion::Three);
    script.query(GroupVersion::Two, 1.0, None, &[]);
    script.until(259.9);
    script.listen("ff3e::1", &SourceFilter::any());
    let report = GroupMessage::Report { version: GroupVersion::Two, group: ip("ff3e::1") };
    assert_eq!(script.taken()[0].1, report);
    script.until(260.0);
    script.taken();
    script.listen("ff3e::2", &SourceFilter::any());
    assert_eq!(script.records()[0].1, [record(ToExclude, "ff3e::2", &[])]);
}

#[test]
fn joins_of_what_is_joined_already_and_leaves_of_what_is_not_send_nothing() {
    for version in [GroupVersion::One, GroupVersion::Two, GroupVersion::Three] {
        let mut script = Script::new(version);
        script.listen(GROUP, &SourceFilter::default());
        assert_eq!(script.taken(), []);
        script.listen(GROUP, &SourceFilter::any());
        script.until(50.0);
        script.taken();
        script.listen(GROUP, &SourceFilter::any());
        assert_eq!((script.taken(), script.host.due()), (vec![], None));
    }
}

#[test]
fn the_group_of_all_hosts_is_never_reported() {
    let mut script = Script::new(GroupVersion::Three);
    script.listen("224.0.0.1", &SourceFilter::any());
    script.query(GroupVersion::Three, 1.0, None, &[]);
    script.until(50.0);
    assert_eq!(script.taken(), []);
}

#[test]
fn random_messages_leave_neither_timers_in_the_past_nor_groups() {
    for seed in 0..200 {
        let mut random = SplitMix64(seed);
        let version =
            [GroupVersion::One, GroupVersion::Two, GroupVersion::Three][random.draw() as usize % 3];
        let mut script = Script::seeded(version, seed);
        let mut at = 0.0;
        for _ in 0..100 {
            let group = format!("239.1.1.{}", random.draw() % 4);
            let version = [GroupVersion::One, GroupVersion::Two, GroupVersion::Three]
                [random.draw() as usize % 3];
            let response = (random.draw() % 100) as f64 / 10.0;
            match random.draw() % 8 {
                0 => script.listen(&group, &SourceFilter::any()),
                1 => script.listen(&group, &SourceFilter::default()),
                2 => script.listen(&group, &only(&["10.0.0.1", "10.0.0.2"])),
                3 => script.listen(&group, &but(&["10.0.0.2"])),
                4 => script.query(version, response, None, &[]),
                5 => script.query(version, response, Some(&group), &[]),
                6 => script.query(GroupVersion::Three, response, Some(&group), &["10.0.0.2"]),
                _ => script.receive(&GroupMessage::Report { version, group: ip(&group) }),
            }
            at += (random.draw() % 300) as f64 / 100.0;
            script.until(at);
        }
        for i in 0..4 {
            script.listen(&format!("239.1.1.{i}"), &SourceFilter::default());
        }
        script.until(at + 100.0);
        assert!(script.host.groups.is_empty() && script.host.due().is_none(), "{:?}", script.host);
    }
}
