//! A host's memberships of multicast groups on one interface, for one of IPv4 and IPv6: the host
//! side of RFC 1112 appendix I, RFC 2236 section 3, RFC 2710 section 4, RFC 3376 section 5 and
//! RFC 3810 section 6.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    net::IpAddr,
    sync::Arc,
};

use squall_units::{Nanos, below, mix};

use crate::multicast::{
    FIRST_RESPONSE, GroupMessage, GroupVersion, Query, Record, RecordKind, is_reported,
};

/// Version, and the timers of RFC 3376 section 8 that hosts have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipTimers {
    /// The highest version that the host has.
    pub version: GroupVersion,
    /// How often the host sends each change, at least 1.
    pub robustness: u8,
    /// Longest interval between these; version 2 has another default.
    pub unsolicited: Nanos,
    /// Time after the last query of an older version until the host returns to its own version.
    pub older_querier: Nanos,
}

impl MembershipTimers {
    /// The defaults of a version. `older_querier`: robustness 2 times a query interval of 125 s,
    /// and a response of 10 s (RFC 3376 section 8.12); RFC 2236 section 8.11 has 400 s.
    pub fn of(version: GroupVersion) -> Self {
        let newest = version == GroupVersion::Three;
        Self {
            version,
            robustness: 2,
            unsolicited: Nanos(if newest { 1_000_000_000 } else { 10_000_000_000 }),
            older_querier: Nanos(if newest { 260_000_000_000 } else { 400_000_000_000 }),
        }
    }
}

/// Circumstances of a step. `chance` is uniform.
#[derive(Clone, Copy, Debug)]
pub struct MembershipContext<'a> {
    pub now: Nanos,
    pub chance: u64,
    pub timers: &'a MembershipTimers,
}

/// Sources that a host wants (RFC 3376 section 3.2). Including none: no membership.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFilter {
    /// Whether frames of all sources but `sources` are wanted; otherwise, those of `sources` only.
    pub exclude: bool,
    /// Sorted, without duplicates.
    pub sources: Arc<[IpAddr]>,
}

impl SourceFilter {
    /// A membership without regard to sources.
    pub fn any() -> Self {
        Self { exclude: true, sources: Arc::default() }
    }

    fn is_member(&self) -> bool {
        self.exclude || !self.sources.is_empty()
    }
}

/// Octets of records in one report: the room of an MTU of 1500 after the headers of either family.
const ROOM: usize = 1500 - 40 - 8 - 8;
/// Pending sources of a query that are recorded; a further one makes it a query for the group,
/// which RFC 3376 section 5.2 allows so that queries cannot fill memory.
const MOST_QUERIED: usize = 64;

/// Memberships of one host.
#[derive(Clone, Debug, Default)]
pub struct Memberships {
    groups: BTreeMap<IpAddr, Membership>,
    /// Pending answers of groups. An entry is stale if the group has another time.
    answers: BinaryHeap<Reverse<(Nanos, IpAddr)>>,
    /// Answer to a general query, in version 3.
    general: Option<Nanos>,
    /// Next repetition of changes, in version 3.
    change: Option<Nanos>,
    /// Until when the queriers of versions 1 and 2 count as present.
    older: [Option<Nanos>; 2],
    /// Version of the last step.
    mode: GroupVersion,
    /// Random numbers drawn from `chance` of this step.
    draws: u64,
}

#[derive(Clone, Debug, Default)]
struct Membership {
    filter: SourceFilter,
    /// When the host answers a query for the group, or, in versions 1 and 2, repeats its report.
    due: Option<Nanos>,
    /// The sources of that query; empty: all.
    queried: Vec<IpAddr>,
    /// Numbers of reports still to be sent about a change of mode, and about each changed source.
    mode_repeats: u8,
    source_repeats: Vec<(IpAddr, u8)>,
    /// Versions 1 and 2: reports to repeat, and whether this host was the last to report.
    repeats: u8,
    reported: bool,
}

impl Membership {
    fn is_changing(&self) -> bool {
        self.mode_repeats > 0 || !self.source_repeats.is_empty()
    }
}

impl Memberships {
    /// Wants these sources of `groups` from now on (the service interface of RFC 3376 section 3).
    /// Groups that hosts do not report are left out.
    pub fn listen(
        &mut self,
        cx: &MembershipContext<'_>,
        groups: impl IntoIterator<Item = IpAddr>,
        filter: &SourceFilter,
        out: &mut Vec<GroupMessage>,
    ) {
        self.begin(cx);
        let mut records = Vec::new();
        for group in groups.into_iter().filter(|group| is_reported(*group)) {
            match self.mode {
                GroupVersion::Three => self.change(cx, group, filter, &mut records),
                _ => self.change_older(cx, group, filter, out),
            }
        }
        pack(records, out);
        self.end();
    }

    /// Handles a message of a querier, or of another host.
    pub fn receive(&mut self, cx: &MembershipContext<'_>, message: &GroupMessage) {
        self.begin(cx);
        match message {
            GroupMessage::Query(query) => self.query(cx, query),
            // Another host has reported the group, so the report of this one is not needed. Hosts
            // of version 3 ignore it (RFC 3376 section 5).
            GroupMessage::Report { group, .. } if self.mode != GroupVersion::Three => {
                if let Some(member) = self.groups.get_mut(group)
                    && member.due.take().is_some()
                {
                    (member.reported, member.repeats) = (false, 0);
                }
            }
            _ => {}
        }
        self.end();
    }

    /// When [`Memberships::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        let answer = self.answers.peek().map(|Reverse((due, _))| *due);
        [self.general, self.change, answer].into_iter().flatten().min()
    }

    /// Runs the timers that are due.
    pub fn timer(&mut self, cx: &MembershipContext<'_>, out: &mut Vec<GroupMessage>) {
        self.begin(cx);
        let mut records = Vec::new();
        while let Some(Reverse((due, group))) = self.answers.peek().copied()
            && due <= cx.now
        {
            self.answers.pop();
            let random = self.random(cx, cx.timers.unsolicited);
            let Some(member) = self.groups.get_mut(&group).filter(|member| member.due == Some(due))
            else {
                continue;
            };
            member.due = None;
            if self.mode == GroupVersion::Three {
                let queried = std::mem::take(&mut member.queried);
                records.extend(current_state(group, &member.filter, &queried));
                continue;
            }
            member.reported = true;
            if member.repeats > 0 {
                member.repeats -= 1;
                member.due = Some(cx.now + random);
                self.answers.push(Reverse((cx.now + random, group)));
            }
            out.push(GroupMessage::Report { version: self.mode, group });
        }
        if self.general.take_if(|due| *due <= cx.now).is_some() {
            let all = self.groups.iter();
            records.extend(all.filter_map(|(group, of)| current_state(*group, &of.filter, &[])));
        }
        if self.change.take_if(|due| *due <= cx.now).is_some() {
            for (group, member) in &mut self.groups {
                changed(*group, member, &mut records);
            }
            self.await_repeat(cx);
        }
        pack(records, out);
        self.end();
    }

    /// Groups of which the host is a member.
    pub fn members(&self) -> usize {
        self.groups.values().filter(|member| member.filter.is_member()).count()
    }

    /// Whether changes are still to be repeated.
    pub fn is_changing(&self) -> bool {
        self.change.is_some() || self.groups.values().any(|member| member.repeats > 0)
    }

    /// The version in which the host speaks at `now` (RFC 3376 section 7.2.1).
    fn mode_at(&self, now: Nanos, timers: &MembershipTimers) -> GroupVersion {
        let present = |until: Option<Nanos>| until.is_some_and(|until| now < until);
        let oldest = match self.older.map(present) {
            [true, _] => GroupVersion::One,
            [_, true] => GroupVersion::Two,
            _ => GroupVersion::Three,
        };
        timers.version.min(oldest)
    }

    /// Begins a step. A change of version cancels all answers and repetitions (section 7.2.1).
    fn begin(&mut self, cx: &MembershipContext<'_>) {
        self.draws = 0;
        let mode = self.mode_at(cx.now, cx.timers);
        if mode == self.mode {
            return;
        }
        self.mode = mode;
        (self.general, self.change) = (None, None);
        self.answers.clear();
        for member in self.groups.values_mut() {
            (member.due, member.mode_repeats, member.repeats) = (None, 0, 0);
            member.queried.clear();
            member.source_repeats.clear();
        }
        self.groups.retain(|_, member| member.filter.is_member());
    }

    /// Removes stale answers, so that [`Memberships::due`] has the time of a real one.
    fn end(&mut self) {
        while let Some(Reverse((due, group))) = self.answers.peek() {
            if self.groups.get(group).is_some_and(|member| member.due == Some(*due)) {
                break;
            }
            self.answers.pop();
        }
    }

    /// A random time up to `most`.
    fn random(&mut self, cx: &MembershipContext<'_>, most: Nanos) -> Nanos {
        self.draws += 1;
        Nanos(below(mix(cx.chance, self.draws), most.0.saturating_add(1)))
    }

    /// RFC 3376 section 5.1. The record for the change is added to `records`.
    fn change(
        &mut self,
        cx: &MembershipContext<'_>,
        group: IpAddr,
        filter: &SourceFilter,
        records: &mut Vec<Record>,
    ) {
        let member = self.groups.entry(group).or_default();
        let before = std::mem::replace(&mut member.filter, filter.clone());
        if before.exclude != filter.exclude {
            // Each of these reports has all sources, so none needs a repetition of its own.
            member.mode_repeats = cx.timers.robustness.max(1);
            member.source_repeats.clear();
        } else {
            let differs = |source: &&IpAddr| !before.sources.contains(source);
            let gone = |source: &&IpAddr| !filter.sources.contains(source);
            let new = filter.sources.iter().filter(differs);
            let old = before.sources.iter().filter(gone);
            for source in new.chain(old) {
                member.source_repeats.retain(|(other, _)| other != source);
                member.source_repeats.push((*source, cx.timers.robustness.max(1)));
            }
        }
        changed(group, member, records);
        if member.is_changing() {
            let random = self.random(cx, cx.timers.unsolicited);
            let due = cx.now + random;
            self.change = Some(self.change.map_or(due, |before| before.min(due)));
        } else if !member.filter.is_member() {
            self.groups.remove(&group);
        }
    }

    /// Waits for the next repetition of changes, if there are any.
    fn await_repeat(&mut self, cx: &MembershipContext<'_>) {
        self.groups.retain(|_, member| member.is_changing() || member.filter.is_member());
        if self.groups.values().any(Membership::is_changing) {
            self.change = Some(cx.now + self.random(cx, cx.timers.unsolicited));
        }
    }

    /// RFC 2236 section 3. Versions 1 and 2 have no sources.
    fn change_older(
        &mut self,
        cx: &MembershipContext<'_>,
        group: IpAddr,
        filter: &SourceFilter,
        out: &mut Vec<GroupMessage>,
    ) {
        let was = self.groups.get(&group).is_some_and(|member| member.filter.is_member());
        match (was, filter.is_member()) {
            (false, true) => {
                let due = cx.now + self.random(cx, cx.timers.unsolicited);
                let repeats = cx.timers.robustness.max(1) - 1;
                let member = self.groups.entry(group).or_default();
                member.filter = filter.clone();
                member.reported = true;
                if repeats > 0 {
                    (member.repeats, member.due) = (repeats - 1, Some(due));
                    self.answers.push(Reverse((due, group)));
                }
                out.push(GroupMessage::Report { version: self.mode, group });
            }
            (true, true) => self.groups.entry(group).or_default().filter = filter.clone(),
            (true, false) => {
                // Version 1 leaves without a message; version 2 needs none, if another host was the
                // last to report.
                let reported = self.groups.remove(&group).is_some_and(|member| member.reported);
                if reported && self.mode == GroupVersion::Two {
                    out.push(GroupMessage::Leave(group));
                }
            }
            (false, false) => {}
        }
    }

    fn query(&mut self, cx: &MembershipContext<'_>, query: &Query) {
        // The version of a query for a group does not count: only general ones show the querier
        // (section 7.2.1).
        if query.group.is_none() && query.version < cx.timers.version {
            let until = Some(cx.now + cx.timers.older_querier);
            match query.version {
                GroupVersion::One => self.older[0] = until,
                _ => self.older[1] = until,
            }
            self.begin(cx);
        }
        match self.mode {
            GroupVersion::Three => self.answer(cx, query),
            GroupVersion::One => self.answer_older(cx, query, FIRST_RESPONSE),
            GroupVersion::Two => self.answer_older(cx, query, query.max_response),
        }
    }

    /// The rules of RFC 3376 section 5.2.
    fn answer(&mut self, cx: &MembershipContext<'_>, query: &Query) {
        let due = cx.now + self.random(cx, query.max_response);
        // 1. A pending answer to a general query that comes before is enough.
        if self.general.is_some_and(|general| general <= due) {
            return;
        }
        // 2. General queries.
        let Some(group) = query.group else {
            self.general = Some(due);
            return;
        };
        let Some(member) = self.groups.get_mut(&group).filter(|member| member.filter.is_member())
        else {
            return;
        };
        let earliest = match member.due {
            // 3. No answer is pending.
            None => {
                member.queried.clone_from(&query.sources);
                due
            }
            // 4. One of both is about all sources.
            Some(pending) if query.sources.is_empty() || member.queried.is_empty() => {
                member.queried.clear();
                pending.min(due)
            }
            // 5. Both are about some sources.
            Some(pending) => {
                for source in &query.sources {
                    if !member.queried.contains(source) {
                        member.queried.push(*source);
                    }
                }
                pending.min(due)
            }
        };
        if member.queried.len() > MOST_QUERIED {
            member.queried.clear();
        }
        // A query that changes nothing must not fill memory.
        if member.due != Some(earliest) {
            member.due = Some(earliest);
            self.answers.push(Reverse((earliest, group)));
        }
    }

    /// RFC 2236 section 3: a running timer is only shortened.
    fn answer_older(&mut self, cx: &MembershipContext<'_>, query: &Query, response: Nanos) {
        let groups: Vec<IpAddr> = match query.group {
            Some(group) => vec![group],
            None => self.groups.keys().copied().collect(),
        };
        for group in groups {
            let due = cx.now + self.random(cx, response);
            let Some(member) = self.groups.get_mut(&group) else { continue };
            if member.due.is_none_or(|pending| response < pending.saturating_sub(cx.now)) {
                member.due = Some(due);
                self.answers.push(Reverse((due, group)));
            }
        }
    }
}

/// The current-state record of a group; `None`: there is nothing to report. `queried`: sources of
/// the query, empty: all (section 5.2).
fn current_state(group: IpAddr, filter: &SourceFilter, queried: &[IpAddr]) -> Option<Record> {
    use RecordKind::{IsExclude, IsInclude};
    if !filter.is_member() {
        return None;
    }
    if queried.is_empty() {
        let kind = if filter.exclude { IsExclude } else { IsInclude };
        return Some(Record { kind, group, sources: filter.sources.to_vec() });
    }
    let wanted = |source: &&IpAddr| filter.exclude != filter.sources.contains(source);
    let sources: Vec<IpAddr> = queried.iter().filter(wanted).copied().collect();
    (!sources.is_empty()).then_some(Record { kind: IsInclude, group, sources })
}

/// Adds the state-change records that a group still has to send, and counts them as sent
/// (section 5.1).
fn changed(group: IpAddr, member: &mut Membership, records: &mut Vec<Record>) {
    use RecordKind::{Allow, Block, ToExclude, ToInclude};
    let filter = &member.filter;
    if member.mode_repeats > 0 {
        member.mode_repeats -= 1;
        let kind = if filter.exclude { ToExclude } else { ToInclude };
        records.push(Record { kind, group, sources: filter.sources.to_vec() });
    } else {
        let wanted = |source: &IpAddr| filter.exclude != filter.sources.contains(source);
        for (kind, allowed) in [(Allow, true), (Block, false)] {
            let pending = member.source_repeats.iter().map(|(source, _)| *source);
            let sources: Vec<IpAddr> = pending.filter(|s| wanted(s) == allowed).collect();
            if !sources.is_empty() {
                records.push(Record { kind, group, sources });
            }
        }
    }
    member.source_repeats.retain_mut(|(_, repeats)| {
        *repeats -= 1;
        *repeats > 0
    });
}

/// Distributes records over reports that fit in a frame.
fn pack(records: Vec<Record>, out: &mut Vec<GroupMessage>) {
    let mut report = Vec::new();
    let mut used = 0;
    for record in records {
        let address = if record.group.is_ipv4() { 4 } else { 16 };
        let len = 4 + address * (1 + record.sources.len());
        if used + len > ROOM && !report.is_empty() {
            out.push(GroupMessage::Records(std::mem::take(&mut report)));
            used = 0;
        }
        used += len;
        report.push(record);
    }
    if !report.is_empty() {
        out.push(GroupMessage::Records(report));
    }
}

#[cfg(test)]
mod tests;
