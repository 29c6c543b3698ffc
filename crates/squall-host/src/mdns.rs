//! Multicast DNS (RFC 6762): the name of one host, from its probes to its last answer, and the
//! messages about it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{Nanos, below};

use crate::dns::{
    A, AAAA, ANY, AUTHORITATIVE, DnsHeader, DnsReader, DnsRecord, FIRST_NAME, HEADER, INTERNET,
    Name, NameTemplate, OPCODE, RESPONSE, TRUNCATED, write_header, write_question, write_record,
};

/// UDP port and group addresses (section 3).
pub const MDNS_PORT: u16 = 5353;
pub const MDNS_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
pub const MDNS_GROUP_6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// Wait before the first probe at most, and interval of the probes and their number (section 8.1).
/// The longest header and questions that are repeated for a resolver of unicast DNS, in octets: the
/// limit of its messages (RFC 1035 section 4.2.1).
const MOST_LEGACY: usize = 512;
const PROBE: Nanos = Nanos(250_000_000);
const PROBES: u8 = 3;
/// Announcements, and the interval between them (section 8.3).
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCE: Nanos = Nanos(1_000_000_000);
/// Pause after a tie with another probe was lost (section 8.2).
const TIE: Nanos = Nanos(1_000_000_000);
/// After this number of conflicts within ten seconds, each further attempt waits for five (section
/// 8.1).
const MANY_CONFLICTS: u8 = 15;
const CONFLICTS_WITHIN: Nanos = Nanos(10_000_000_000);
const SLOW: Nanos = Nanos(5_000_000_000);
/// A record is multicast once within this time at most; one that answers a probe, within the second
/// (section 6).
const QUIET: Nanos = Nanos(1_000_000_000);
const QUIET_PROBE: Nanos = Nanos(250_000_000);
/// Wait for further known answers of an asker: the time and its random part, and the longest wait from
/// its first packet on, so that no stream of such packets keeps an answer back forever (section 7.2).
const DEFER: Nanos = Nanos(400_000_000);
const DEFER_RANDOM: Nanos = Nanos(100_000_000);
const LONGEST_DEFER: Nanos = Nanos(3_000_000_000);
/// The longest validity of a record in a reply to a resolver of unicast DNS, in seconds (section
/// 6.7).
const LEGACY_TTL: u32 = 10;
/// The bit of a question's class that asks for a reply by unicast, and of a record's class that makes
/// caches forget others (sections 5.4 and 10.2).
const UNICAST: u16 = 0x8000;
const FLUSH: u16 = 0x8000;

/// The bits of a pointer to a name (RFC 1035 section 4.1.4).
const POINTER: u16 = 0xc000;

/// Settings of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdnsSettings {
    /// The name below "local", without that: "host-{}".
    pub name: Box<str>,
    /// Seconds for which records are valid: 120 by default (section 10).
    pub ttl: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// Probes so far.
    Probing(u8),
    /// Announcements so far.
    Announcing(u8),
}

/// A message that the host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MdnsAction {
    /// A query for the name, with the host's own records.
    Probe,
    /// An unsolicited response. `first`: the name is the host's from now on.
    Announce { first: bool },
    /// The answer to a question for records of this type, which has waited for known answers.
    Answer { kind: u16 },
}

/// Own records that an asker knows: A, then AAAA.
pub type Known = [bool; 2];

/// An answer that waits for further known answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deferred {
    due: Nanos,
    /// When the first packet came, and from which address; `None`: several hosts have asked.
    since: Nanos,
    from: Option<IpAddr>,
    kind: u16,
    known: Known,
}

impl Deferred {
    /// The type of the records that are still to be sent.
    fn kind(&self) -> Option<u16> {
        let a = matches!(self.kind, A | ANY) && !self.known[0];
        let aaaa = matches!(self.kind, AAAA | ANY) && !self.known[1];
        match (a, aaaa) {
            (true, true) => Some(ANY),
            (true, false) => Some(A),
            (false, true) => Some(AAAA),
            (false, false) => None,
        }
    }
}

/// The name of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MdnsName {
    phase: Phase,
    due: Option<Nanos>,
    /// Names that belonged to others, which is the number at the end of the next one.
    generation: u16,
    /// Conflicts since the first one of ten seconds, and when that was.
    conflicts: u8,
    since: Nanos,
    /// When the records were multicast last.
    answered: Option<Nanos>,
    deferred: Option<Deferred>,
}

impl MdnsName {
    /// The first probe is due within 250 ms (section 8.1).
    pub fn start(&mut self, now: Nanos, chance: u64) {
        (self.phase, self.deferred) = (Phase::Probing(0), None);
        self.due = Some(now + Nanos(below(chance, PROBE.0 + 1)));
    }

    pub fn due(&self) -> Option<Nanos> {
        self.due.into_iter().chain(self.deferred.map(|answer| answer.due)).min()
    }

    /// Whether the name is the host's.
    pub fn is_owned(&self) -> bool {
        matches!(self.phase, Phase::Announcing(_))
    }

    pub fn is_probing(&self) -> bool {
        matches!(self.phase, Phase::Probing(_))
    }

    pub fn timer(&mut self, now: Nanos) -> Option<MdnsAction> {
        if let Some(answer) = self.deferred.take_if(|answer| answer.due <= now)
            && let Some(kind) = answer.kind()
        {
            return Some(MdnsAction::Answer { kind });
        }
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        match self.phase {
            Phase::Idle => None,
            Phase::Probing(sent) if sent < PROBES => {
                self.phase = Phase::Probing(sent + 1);
                self.due = Some(now + PROBE);
                Some(MdnsAction::Probe)
            }
            Phase::Probing(_) => {
                (self.phase, self.due) = (Phase::Announcing(1), Some(now + ANNOUNCE));
                self.answered = Some(now);
                Some(MdnsAction::Announce { first: true })
            }
            Phase::Announcing(sent) => {
                self.phase = Phase::Announcing(sent + 1);
                self.due = (sent + 1 < ANNOUNCEMENTS).then_some(now + ANNOUNCE);
                self.answered = Some(now);
                Some(MdnsAction::Announce { first: false })
            }
        }
    }

    /// Another host has a record of the name with other data. A host that probes takes another name
    /// (section 8.1), and one that has announced its name examines it again (section 9).
    pub fn conflict(&mut self, now: Nanos, chance: u64) {
        if now >= self.since + CONFLICTS_WITHIN || self.conflicts == 0 {
            (self.since, self.conflicts) = (now, 0);
        }
        self.conflicts = self.conflicts.saturating_add(1);
        if self.is_probing() {
            self.generation = self.generation.saturating_add(1);
        }
        if self.phase != Phase::Idle {
            let from = if self.conflicts >= MANY_CONFLICTS { now + SLOW } else { now };
            self.start(from, chance);
        }
    }

    /// Another host probes for the name, and its records come after the own ones (section 8.2).
    pub fn lose(&mut self, now: Nanos) {
        if self.is_probing() {
            (self.phase, self.due) = (Phase::Probing(0), Some(now + TIE));
        }
    }

    /// The host at `from` asks for records of type `kind`. It knows the records `known`, and sends
    /// further ones that it knows. `chance` is uniform.
    pub fn defer(&mut self, now: Nanos, chance: u64, from: IpAddr, kind: u16, known: Known) {
        let due = now + DEFER + Nanos(below(chance, DEFER_RANDOM.0 + 1));
        self.deferred = match self.deferred {
            // One answer to all hosts is enough for both; it leaves out nothing, because only one
            // of them may know it.
            Some(answer) if answer.from != Some(from) || answer.kind != kind => {
                Some(Deferred { from: None, kind: ANY, known: [false; 2], ..answer })
            }
            Some(answer) => Some(Deferred { known, ..answer }),
            None => Some(Deferred { due, since: now, from: Some(from), kind, known }),
        };
    }

    /// The host at `from` knows these records. `more`: further packets follow.
    pub fn knows(&mut self, now: Nanos, chance: u64, from: IpAddr, known: Known, more: bool) {
        let Some(answer) = self.deferred.as_mut().filter(|answer| answer.from == Some(from)) else {
            return;
        };
        for (own, other) in answer.known.iter_mut().zip(known) {
            *own |= other;
        }
        if more {
            let due = now + DEFER + Nanos(below(chance, DEFER_RANDOM.0 + 1));
            answer.due = due.min(answer.since + LONGEST_DEFER).max(answer.due);
        }
    }

    /// Whether the records may be multicast now; if so, they are.
    pub fn may_multicast(&mut self, now: Nanos, to_probe: bool) -> bool {
        let quiet = if to_probe { QUIET_PROBE } else { QUIET };
        let may = self.answered.is_none_or(|last| now >= last + quiet);
        if may {
            self.answered = Some(now);
        }
        may
    }

    /// Whether the records were multicast within the last quarter of their validity of `ttl`
    /// seconds. Otherwise, a question that asks for unicast is answered by multicast, so that the
    /// caches of all hosts have them (section 5.4).
    pub fn is_recent(&self, now: Nanos, ttl: u32) -> bool {
        let quarter = Nanos(u64::from(ttl) * Nanos::SECOND.0 / 4);
        self.answered.is_some_and(|last| now < last + quarter)
    }

    /// Ends the name. Returns whether the host has to say so (section 10.1).
    pub fn stop(&mut self) -> bool {
        let owned = self.is_owned();
        (self.phase, self.due, self.deferred) = (Phase::Idle, None, None);
        owned
    }

    /// Writes the name of host number `host`.
    pub fn write(&self, host: u32, settings: &MdnsSettings, name: &mut Name) -> Option<()> {
        let suffix = match self.generation {
            0 => String::new(),
            generation => format!("-{}", generation + 1),
        };
        NameTemplate::new(&format!("{}{suffix}.local", settings.name))?.write(host + 1, 1, name)
    }
}

/// The addresses of a host, as records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MdnsRecords {
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Ipv6Addr>,
}

impl MdnsRecords {
    /// Number of records of this type.
    pub(crate) fn count(&self, kind: u16) -> u16 {
        u16::from(self.ipv4.is_some() && matches!(kind, A | ANY))
            + u16::from(self.ipv6.is_some() && matches!(kind, AAAA | ANY))
    }

    fn write(&self, kind: u16, name: &[u8], class: u16, ttl: u32, out: &mut Vec<u8>) {
        if let (A | ANY, Some(address)) = (kind, self.ipv4) {
            write_record(name, &DnsRecord { kind: A, class, ttl, data: &address.octets() }, out);
        }
        if let (AAAA | ANY, Some(address)) = (kind, self.ipv6) {
            let data = &address.octets();
            write_record(name, &DnsRecord { kind: AAAA, class, ttl, data }, out);
        }
    }

    /// Whether the host has an address that can send to `other`.
    pub(crate) fn has_family_of(&self, other: IpAddr) -> bool {
        match other {
            IpAddr::V4(_) => self.ipv4.is_some(),
            IpAddr::V6(_) => self.ipv6.is_some(),
        }
    }

    /// Whether the host has a record of this type with this data.
    fn has(&self, kind: u16, data: &[u8]) -> bool {
        match kind {
            A => self.ipv4.is_some_and(|address| data == address.octets()),
            AAAA => self.ipv6.is_some_and(|address| data == address.octets()),
            _ => false,
        }
    }
}

/// Appends a probe (section 8.1): a question for all records, and the own ones as authority.
pub fn write_probe(name: &Name, records: &MdnsRecords, ttl: u32, out: &mut Vec<u8>) {
    write_header(0, 0, [1, 0, records.count(ANY), 0], out);
    write_question(name.octets(), ANY, INTERNET | UNICAST, out);
    records.write(ANY, &FIRST_NAME, INTERNET, ttl, out);
}

/// Appends a response with all records (section 8.3); with a `ttl` of 0 it is the last one.
pub fn write_announcement(name: &Name, records: &MdnsRecords, ttl: u32, out: &mut Vec<u8>) {
    write_header(0, RESPONSE | AUTHORITATIVE, [0, records.count(ANY), 0, 0], out);
    records.write(ANY, name.octets(), INTERNET | FLUSH, ttl, out);
}

/// The hosts that a message is about: `host_of` finds them by the names in it.
///
/// # Errors
/// The reason for which the message is ignored.
pub fn names_in(
    message: &[u8],
    host_of: impl Fn(&[u8]) -> Option<u32>,
) -> Result<Vec<u32>, &'static str> {
    let (header, mut reader) = DnsReader::new(message)?;
    let (mut name, mut hosts) = (Name::default(), Vec::new());
    let mut add = |name: &Name| {
        if let Some(host) = host_of(name.octets())
            && !hosts.contains(&host)
        {
            hosts.push(host);
        }
    };
    for _ in 0..header.questions {
        reader.question(&mut name)?;
        add(&name);
    }
    // Known answers of a query may follow its question in another packet (section 7.2).
    let is_response = header.flags & RESPONSE != 0;
    let additional = if is_response { header.additional } else { 0 };
    for _ in 0..u32::from(header.answers) + u32::from(additional) {
        reader.record(&mut name)?;
        add(&name);
    }
    Ok(hosts)
}

/// The meaning of a received message for one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MdnsEvent {
    /// A question for records of this type, which is to be answered by multicast, or by unicast.
    Asked {
        kind: u16,
        unicast: bool,
        is_probe: bool,
    },
    /// As before, by a host that sends further answers that it knows (section 7.2).
    AskedInPart {
        kind: u16,
        known: Known,
    },
    /// The host that has asked so knows these records. `more`: further packets follow.
    Knows {
        known: Known,
        more: bool,
    },
    /// A resolver of unicast DNS asks (section 6.7): the answer repeats identifier and question.
    Legacy {
        kind: u16,
        id: u16,
    },
    /// Another host has the name.
    Conflict,
    /// Another host probes for the name, and its records come after the own ones.
    Lost,
    Nothing,
}

/// Reads a message for the host whose name and records these are.
///
/// # Errors
/// The reason for which the message is ignored.
pub fn read(
    message: &[u8],
    from_port: u16,
    own: (&Name, &MdnsRecords),
    is_probing: bool,
    ttl: u32,
) -> Result<MdnsEvent, &'static str> {
    let (header, reader) = DnsReader::new(message)?;
    // Messages with other operations or errors are ignored (sections 18.3 and 18.11).
    if header.flags & (OPCODE | crate::dns::RCODE) != 0 {
        return Err("bad_flags");
    }
    match header.flags & RESPONSE {
        0 => read_query((&header, reader), from_port, own, is_probing, ttl),
        // Responses come from the port of multicast DNS (section 6).
        _ if from_port != MDNS_PORT => Err("bad_port"),
        _ => read_response(&header, reader, own),
    }
}

fn read_response(
    header: &DnsHeader,
    mut reader: DnsReader<'_>,
    (own, records): (&Name, &MdnsRecords),
) -> Result<MdnsEvent, &'static str> {
    let mut name = Name::default();
    for _ in 0..header.questions {
        reader.question(&mut name)?;
    }
    let mut event = MdnsEvent::Nothing;
    let all = u32::from(header.answers) + u32::from(header.authorities);
    for _ in 0..all + u32::from(header.additional) {
        let record = reader.record(&mut name)?;
        let is_address = matches!(record.kind, A | AAAA) && record.class & !FLUSH == INTERNET;
        if is_address
            && record.ttl > 0
            && name.octets() == own.octets()
            && !records.has(record.kind, record.data)
        {
            event = MdnsEvent::Conflict;
        }
    }
    Ok(event)
}

fn read_query(
    (header, mut reader): (&DnsHeader, DnsReader<'_>),
    from_port: u16,
    (own, records): (&Name, &MdnsRecords),
    is_probing: bool,
    ttl: u32,
) -> Result<MdnsEvent, &'static str> {
    let mut name = Name::default();
    let mut asked: Option<(u16, bool)> = None;
    for _ in 0..header.questions {
        let (kind, class) = reader.question(&mut name)?;
        let is_known = matches!(class & !UNICAST, INTERNET | ANY) && matches!(kind, A | AAAA | ANY);
        if is_known && name.octets() == own.octets() {
            let unicast = class & UNICAST != 0;
            // Questions for both types of one name have one answer with both.
            asked = Some(asked.map_or((kind, unicast), |(other, all)| {
                (if other == kind { kind } else { ANY }, all && unicast)
            }));
        }
    }
    let more = header.flags & TRUNCATED != 0;
    let Some((kind, unicast)) = asked else {
        let known = known_answers(header, &mut reader, own, records, ttl)?;
        return Ok(match known.contains(&true) && from_port == MDNS_PORT {
            true => MdnsEvent::Knows { known, more },
            false => MdnsEvent::Nothing,
        });
    };
    let count = records.count(kind);
    if from_port != MDNS_PORT {
        // While the host probes, the name may be that of another one (section 8.1). A resolver
        // would take an answer without a record as a denial.
        // The questions are repeated: the answer must fit, and not multiply a long query.
        let fits = reader.so_far().len() <= MOST_LEGACY;
        return Ok(match !is_probing && count > 0 && fits {
            true => MdnsEvent::Legacy { kind, id: header.id },
            false => MdnsEvent::Nothing,
        });
    }
    let known = known_answers(header, &mut reader, own, records, ttl)?;
    let mut others: Vec<(u16, &[u8])> = Vec::new();
    for _ in 0..header.authorities {
        let record = reader.record(&mut name)?;
        if name.octets() == own.octets() && record.class & !FLUSH == INTERNET {
            others.push((record.kind, record.data));
        }
    }
    let is_probe = !others.is_empty();
    if is_probing {
        return Ok(if is_probe && comes_later(others, records) {
            MdnsEvent::Lost
        } else {
            MdnsEvent::Nothing
        });
    }
    // A host without a record of this type says nothing; it could only deny it by an NSEC record.
    let knows = |place: usize, of: u16| u16::from(known[place] && (kind == of || kind == ANY));
    if count == 0 || knows(0, A) + knows(1, AAAA) >= count {
        return Ok(MdnsEvent::Nothing);
    }
    Ok(match more && !is_probe {
        true => MdnsEvent::AskedInPart { kind, known },
        false => MdnsEvent::Asked { kind, unicast, is_probe },
    })
}

/// The own records that the asker knows, with at least half of their validity (section 7.1).
fn known_answers(
    header: &DnsHeader,
    reader: &mut DnsReader<'_>,
    own: &Name,
    records: &MdnsRecords,
    ttl: u32,
) -> Result<Known, &'static str> {
    let (mut name, mut known) = (Name::default(), [false; 2]);
    for _ in 0..header.answers {
        let record = reader.record(&mut name)?;
        let is_own = name.octets() == own.octets() && records.has(record.kind, record.data);
        if is_own && record.ttl >= ttl / 2 {
            known[usize::from(record.kind == AAAA)] = true;
        }
    }
    Ok(known)
}

/// Whether the records of another host come later than the own ones: both are sorted by type and
/// data, and compared one by one; the longer list comes later (section 8.2.1).
fn comes_later(mut others: Vec<(u16, &[u8])>, records: &MdnsRecords) -> bool {
    let (ipv4, ipv6) = (records.ipv4.map(|one| one.octets()), records.ipv6.map(|one| one.octets()));
    let mut own: Vec<(u16, &[u8])> = Vec::new();
    own.extend(ipv4.as_ref().map(|octets| (A, &octets[..])));
    own.extend(ipv6.as_ref().map(|octets| (AAAA, &octets[..])));
    others.sort_unstable();
    others > own
}

/// Appends the answer to a question: by multicast or unicast, or to a resolver of unicast DNS, whose
/// `query` is repeated.
pub fn write_answer(
    (event, query): (&MdnsEvent, &[u8]),
    name: &Name,
    records: &MdnsRecords,
    ttl: u32,
    out: &mut Vec<u8>,
) {
    match *event {
        MdnsEvent::Asked { kind, .. } => {
            write_header(0, RESPONSE | AUTHORITATIVE, [0, records.count(kind), 0, 0], out);
            records.write(kind, name.octets(), INTERNET | FLUSH, ttl, out);
        }
        MdnsEvent::Legacy { kind, id } => {
            let Some((count, questions, place)) = questions_about(name, query) else { return };
            write_header(id, RESPONSE | AUTHORITATIVE, [count, records.count(kind), 0, 0], out);
            out.extend_from_slice(questions);
            records.write(kind, &place, INTERNET, ttl.min(LEGACY_TTL), out);
        }
        MdnsEvent::AskedInPart { .. }
        | MdnsEvent::Knows { .. }
        | MdnsEvent::Conflict
        | MdnsEvent::Lost
        | MdnsEvent::Nothing => {}
    }
}

/// The questions of a query, their number, and a pointer to the name of the first one about `own`.
/// The octets are copied, because resolvers ask with upper and lower case at random, against forged
/// answers.
fn questions_about<'q>(own: &Name, query: &'q [u8]) -> Option<(u16, &'q [u8], [u8; 2])> {
    let (header, mut reader) = DnsReader::new(query).ok()?;
    let (mut name, mut place) = (Name::default(), None);
    for _ in 0..header.questions {
        let at = reader.so_far().len();
        reader.question(&mut name).ok()?;
        if name.octets() == own.octets() {
            place = place.or(Some(at));
        }
    }
    let place = u16::try_from(place?).ok().filter(|place| *place < 1 << 14)?;
    Some((header.questions, &reader.so_far()[HEADER..], (POINTER | place).to_be_bytes()))
}

/// The group address of a family.
pub(crate) fn group_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => MDNS_GROUP.into(),
        IpAddr::V6(_) => MDNS_GROUP_6.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: u32 = 120;

    fn millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    fn name(text: &str) -> Name {
        let mut name = Name::default();
        NameTemplate::new(text).unwrap().write(1, 1, &mut name).unwrap();
        name
    }

    fn records(last: u8) -> MdnsRecords {
        MdnsRecords { ipv4: Some([10, 0, 0, last].into()), ipv6: None }
    }

    /// The event that a message is for the host "host.local" with 10.0.0.5.
    fn event(message: &[u8], port: u16, is_probing: bool) -> Result<MdnsEvent, &'static str> {
        read(message, port, (&name("host.local"), &records(5)), is_probing, TTL)
    }

    /// All actions until the timers end, with the time before each in milliseconds.
    fn played(host: &mut MdnsName, mut now: Nanos) -> Vec<(MdnsAction, u64)> {
        let mut actions = Vec::new();
        while let Some(due) = host.due() {
            assert_eq!(host.timer(due.saturating_sub(Nanos(1))), None, "too early");
            let waited = (due - now).0 / 1_000_000;
            now = due;
            actions.extend(host.timer(now).map(|action| (action, waited)));
        }
        actions
    }

    #[test]
    fn three_probes_250_ms_apart_are_followed_by_two_announcements_a_second_apart() {
        use MdnsAction::{Announce, Probe};
        for chance in [0, u64::MAX / 2, u64::MAX] {
            let mut host = MdnsName::default();
            host.start(millis(1000), chance);
            let actions = played(&mut host, millis(1000));
            let kinds: Vec<_> = actions.iter().map(|action| action.0).collect();
            let (first, second) = (Announce { first: true }, Announce { first: false });
            assert_eq!(kinds, [Probe, Probe, Probe, first, second]);
            assert!(actions[0].1 <= 250, "a random wait: {actions:?}");
            let waits: Vec<_> = actions[1..].iter().map(|action| action.1).collect();
            assert_eq!(waits, [250, 250, 250, 1000]);
            assert!(host.is_owned());
        }
    }

    #[test]
    fn a_conflict_while_probing_gives_another_name_and_after_fifteen_slows_down() {
        let settings = MdnsSettings { name: "host".into(), ttl: TTL };
        let mut host = MdnsName::default();
        host.start(millis(1000), 0);
        let mut found = Name::default();
        for conflict in 1..=16u64 {
            let now = millis(1000 + conflict);
            host.conflict(now, 0);
            host.write(0, &settings, &mut found).unwrap();
            assert_eq!(found.octets(), name(&format!("host-{}.local", conflict + 1)).octets());
            let wait = if conflict >= 15 { SLOW } else { Nanos::ZERO };
            assert_eq!(host.due(), Some(now + wait), "{conflict}");
        }
        host.conflict(millis(11_001), 0);
        assert_eq!(host.due(), Some(millis(11_001)), "ten seconds after the first one");
    }

    #[test]
    fn a_conflict_with_an_announced_name_examines_it_again() {
        let mut host = MdnsName::default();
        host.start(millis(1000), 0);
        played(&mut host, millis(1000));
        host.conflict(millis(9000), 0);
        assert!(host.is_probing());
        let settings = MdnsSettings { name: "host".into(), ttl: TTL };
        let mut found = Name::default();
        host.write(0, &settings, &mut found).unwrap();
        assert_eq!(found.octets(), name("host.local").octets(), "the same name");
        assert!(!host.stop(), "it has no name to give up");
    }

    #[test]
    fn of_two_probes_the_later_data_wins_and_the_other_waits_a_second() {
        let probe = |last| {
            let mut out = Vec::new();
            write_probe(&name("host.local"), &records(last), TTL, &mut out);
            out
        };
        assert_eq!(event(&probe(6), MDNS_PORT, true), Ok(MdnsEvent::Lost));
        assert_eq!(event(&probe(4), MDNS_PORT, true), Ok(MdnsEvent::Nothing));
        assert_eq!(event(&probe(5), MDNS_PORT, true), Ok(MdnsEvent::Nothing), "the same data");
        let defended = MdnsEvent::Asked { kind: ANY, unicast: true, is_probe: true };
        assert_eq!(event(&probe(6), MDNS_PORT, false), Ok(defended));
        let mut host = MdnsName::default();
        host.start(millis(1000), 0);
        host.timer(millis(1000));
        host.lose(millis(1100));
        assert_eq!(host.due(), Some(millis(2100)));
        assert_eq!(played(&mut host, millis(1100)).len(), 5, "all probes again");
    }

    #[test]
    fn the_order_of_records_is_that_of_type_and_data_and_then_of_their_number() {
        let own =
            MdnsRecords { ipv4: Some([169, 254, 99, 200].into()), ipv6: Some(Ipv6Addr::LOCALHOST) };
        // The example of section 8.2.1: 169.254.200.50 comes later than 169.254.99.200.
        let later = |others: &[(u16, &[u8])]| comes_later(others.to_vec(), &own);
        assert!(later(&[(A, &[169, 254, 200, 50])]));
        assert!(!later(&[(A, &[169, 254, 99, 199]), (AAAA, &[0xff; 16])]));
        assert!(!later(&[(A, &[169, 254, 99, 200])]), "fewer");
        let localhost = Ipv6Addr::LOCALHOST.octets();
        let others: [(u16, &[u8]); 3] = [(99, &[1]), (AAAA, &localhost), (A, &[169, 254, 99, 200])];
        assert!(later(&others), "more, in any order");
    }

    #[test]
    fn a_record_is_multicast_once_a_second_and_four_times_for_probes() {
        let mut host = MdnsName::default();
        assert!(host.may_multicast(millis(1000), false));
        assert!(!host.may_multicast(millis(1999), false));
        assert!(host.may_multicast(millis(2000), false));
        assert!(!host.may_multicast(millis(2249), true));
        assert!(host.may_multicast(millis(2250), true));
    }

    #[test]
    fn records_are_recent_for_a_quarter_of_their_validity() {
        let mut host = MdnsName::default();
        assert!(!host.is_recent(millis(0), TTL));
        host.may_multicast(millis(1000), false);
        assert!(host.is_recent(millis(30_999), TTL) && !host.is_recent(millis(31_000), TTL));
        host.start(millis(40_000), 0);
        played(&mut host, millis(40_000));
        // Announcements at 40.75 and 41.75 s.
        assert!(host.is_recent(millis(71_749), TTL) && !host.is_recent(millis(71_750), TTL));
    }

    const ASKER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8));

    /// A host with its name, for whose records another one asks in several packets from 10 s on.
    fn asked(kind: u16, chance: u64) -> MdnsName {
        let mut host = MdnsName::default();
        host.start(millis(1000), 0);
        played(&mut host, millis(1000));
        host.defer(millis(10_000), chance, ASKER, kind, [false; 2]);
        host
    }

    #[test]
    fn an_answer_waits_400_to_500_ms_for_further_known_answers() {
        for (chance, wait) in [(0, 400), (u64::MAX / 2, 450), (u64::MAX, 500)] {
            let mut host = asked(A, chance);
            let sent = played(&mut host, millis(10_000));
            assert_eq!(sent, [(MdnsAction::Answer { kind: A }, wait)], "RFC 6762 section 7.2");
        }
    }

    #[test]
    fn each_further_packet_that_is_not_the_last_prolongs_the_wait_and_for_3_seconds_at_most() {
        let mut host = asked(A, 0);
        host.knows(millis(10_300), 0, ASKER, [false; 2], true);
        assert_eq!(host.due(), Some(millis(10_700)));
        host.knows(millis(10_600), 0, ASKER, [false; 2], false);
        assert_eq!(host.due(), Some(millis(10_700)), "the last one");
        host.knows(millis(10_600), 0, OTHER, [true; 2], true);
        assert_eq!(host.due(), Some(millis(10_700)), "of another host");
        for tenth in 107..200 {
            host.knows(millis(tenth * 100), 0, ASKER, [false; 2], true);
        }
        assert_eq!(host.due(), Some(millis(13_000)));
        assert_eq!(host.timer(millis(13_000)), Some(MdnsAction::Answer { kind: A }));
    }

    #[test]
    fn known_answers_of_a_further_packet_are_left_out() {
        for (kind, known, expected) in [
            (A, [true, false], None),
            (A, [false, true], Some(A)),
            (ANY, [true, false], Some(AAAA)),
            (ANY, [false, true], Some(A)),
            (ANY, [true, true], None),
        ] {
            let mut host = asked(kind, 0);
            host.knows(millis(10_100), 0, ASKER, known, false);
            let answer = expected.map(|kind| MdnsAction::Answer { kind });
            assert_eq!(host.timer(millis(10_400)), answer, "{kind} {known:?}");
            assert_eq!(host.due(), None);
        }
    }

    #[test]
    fn a_second_asker_gets_all_records_with_the_answer_to_the_first() {
        let mut host = asked(A, 0);
        host.knows(millis(10_100), 0, ASKER, [true, false], false);
        host.defer(millis(10_200), 0, OTHER, AAAA, [false; 2]);
        assert_eq!(host.timer(millis(10_399)), None);
        assert_eq!(host.timer(millis(10_400)), Some(MdnsAction::Answer { kind: ANY }));
    }

    #[test]
    fn a_name_that_is_examined_again_or_given_up_answers_nothing_that_waited() {
        let mut host = asked(A, 0);
        host.conflict(millis(10_100), 0);
        let sent = played(&mut host, millis(10_100));
        assert!(!sent.iter().any(|sent| matches!(sent.0, MdnsAction::Answer { .. })), "{sent:?}");
        let mut host = asked(A, 0);
        host.stop();
        assert_eq!((host.due(), host.timer(millis(20_000))), (None, None));
    }

    #[test]
    fn a_query_in_parts_is_read_with_its_known_answers() {
        let part = |questions: u16, flags: u16, ttl: Option<u32>| {
            let mut out = Vec::new();
            write_header(0, flags, [questions, u16::from(ttl.is_some()), 0, 0], &mut out);
            if questions > 0 {
                write_question(name("host.local").octets(), ANY, INTERNET, &mut out);
            }
            if let Some(ttl) = ttl {
                let data = &[10, 0, 0, 5];
                let record = DnsRecord { kind: A, class: INTERNET, ttl, data };
                write_record(name("host.local").octets(), &record, &mut out);
            }
            out
        };
        let first = MdnsEvent::AskedInPart { kind: ANY, known: [false; 2] };
        assert_eq!(event(&part(1, TRUNCATED, None), MDNS_PORT, false), Ok(first));
        for more in [false, true] {
            let flags = if more { TRUNCATED } else { 0 };
            let knows = MdnsEvent::Knows { known: [true, false], more };
            assert_eq!(event(&part(0, flags, Some(TTL)), MDNS_PORT, false), Ok(knows));
            let old = event(&part(0, flags, Some(TTL / 2 - 1)), MDNS_PORT, false);
            assert_eq!(old, Ok(MdnsEvent::Nothing));
        }
        let known = part(1, TRUNCATED, Some(TTL));
        assert_eq!(event(&known, MDNS_PORT, false), Ok(MdnsEvent::Nothing), "all that it has");
        let host_of = |of: &[u8]| (of == name("host.local").octets()).then_some(4);
        let found = names_in(&part(0, 0, Some(TTL)), host_of);
        assert_eq!(found, Ok(vec![4]));
    }

    #[test]
    fn a_lost_tie_and_a_conflict_begin_with_three_probes_each_time() {
        let mut host = MdnsName::default();
        host.start(millis(1000), 0);
        for begin in [2000, 4000] {
            host.timer(host.due().unwrap());
            host.lose(millis(begin));
            assert_eq!(host.due(), Some(millis(begin + 1000)), "a second");
        }
        host.conflict(millis(6000), 0);
        let waits: Vec<_> = played(&mut host, millis(6000)).iter().map(|one| one.1).collect();
        assert_eq!(waits, [0, 250, 250, 250, 1000]);
        host.lose(millis(9000));
        assert_eq!(host.due(), None, "only a host that probes has a tie");
    }

    #[test]
    fn a_name_that_is_given_up_has_no_timer_and_its_last_message_once() {
        let mut host = MdnsName::default();
        host.start(millis(1000), 0);
        assert!(!host.stop(), "it was not announced");
        assert_eq!((host.due(), host.timer(millis(9000))), (None, None));
        host.start(millis(10_000), 0);
        played(&mut host, millis(10_000));
        assert!(host.stop() && !host.stop());
        host.conflict(millis(20_000), 0);
        assert_eq!(host.due(), None);
    }

    fn question(kind: u16, class: u16, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        write_header(9, 0, [1, 0, 0, 0], &mut out);
        write_question(name(text).octets(), kind, class, &mut out);
        out
    }

    #[test]
    fn questions_are_answered_by_multicast_or_unicast() {
        for (kind, class, unicast) in [(A, INTERNET, false), (ANY, INTERNET | UNICAST, true)] {
            let found = event(&question(kind, class, "HOST.local"), MDNS_PORT, false).unwrap();
            assert_eq!(found, MdnsEvent::Asked { kind, unicast, is_probe: false });
            let mut out = Vec::new();
            write_answer((&found, &[]), &name("host.local"), &records(5), TTL, &mut out);
            let (header, mut reader) = DnsReader::new(&out).unwrap();
            assert_eq!((header.id, header.flags), (0, RESPONSE | AUTHORITATIVE));
            let mut of = Name::default();
            let record = reader.record(&mut of).unwrap();
            assert_eq!((record.class, record.ttl), (INTERNET | FLUSH, TTL));
            assert_eq!(
                (record.data, of.octets()),
                (&[10, 0, 0, 5][..], name("host.local").octets())
            );
        }
        let nothing = [question(AAAA, INTERNET, "host.local"), question(A, INTERNET, "x.local")];
        for message in nothing {
            assert_eq!(event(&message, MDNS_PORT, false), Ok(MdnsEvent::Nothing));
        }
        assert_eq!(
            event(&question(A, INTERNET, "host.local"), MDNS_PORT, true),
            Ok(MdnsEvent::Nothing)
        );
    }

    #[test]
    fn long_queries_of_unicast_resolvers_are_not_repeated() {
        let mut query = Vec::new();
        write_header(9, 0, [60, 0, 0, 0], &mut query);
        (0..60).for_each(|_| write_question(name("host.local").octets(), A, INTERNET, &mut query));
        assert_eq!(event(&query, 40_000, false), Ok(MdnsEvent::Nothing));
    }

    #[test]
    fn a_resolver_of_unicast_dns_gets_its_question_back_and_a_short_validity() {
        // As a resolver asks that varies the case; a second question has a pointer to "local".
        let mut query = Vec::new();
        write_header(9, 0, [2, 0, 0, 0], &mut query);
        write_question(b"\x05other\x05lOcAl\0", A, INTERNET, &mut query);
        write_question(b"\x04hOsT\xc0\x12", A, INTERNET, &mut query);
        let found = event(&query, 40_000, false).unwrap();
        assert_eq!(found, MdnsEvent::Legacy { kind: A, id: 9 });
        // After other octets: pointers count from the message.
        let mut out = vec![1, 2, 3];
        write_answer((&found, &query), &name("host.local"), &records(5), TTL, &mut out);
        let answer = &out[3..];
        assert_eq!(answer[HEADER..query.len()], query[HEADER..], "octet by octet");
        let (header, mut reader) = DnsReader::new(answer).unwrap();
        assert_eq!((header.id, header.questions, header.answers), (9, 2, 1));
        let mut of = Name::default();
        (0..2).for_each(|_| assert_eq!(reader.question(&mut of), Ok((A, INTERNET))));
        let record = reader.record(&mut of).unwrap();
        assert_eq!(of.octets(), name("host.local").octets());
        assert_eq!((record.class, record.ttl), (INTERNET, LEGACY_TTL), "no cache flush bit");
        assert_eq!(record.data, [10, 0, 0, 5]);
    }

    #[test]
    fn a_resolver_gets_no_answer_before_the_name_is_the_hosts_and_none_without_a_record() {
        let port = 40_000;
        let asked = |kind| question(kind, INTERNET, "host.local");
        assert_eq!(event(&asked(A), port, true), Ok(MdnsEvent::Nothing), "it probes");
        assert_eq!(event(&asked(AAAA), port, false), Ok(MdnsEvent::Nothing), "no IPv6");
        assert_eq!(event(&asked(ANY), port, false), Ok(MdnsEvent::Legacy { kind: ANY, id: 9 }));
    }

    #[test]
    fn an_answer_that_the_asker_knows_is_not_repeated_unless_it_is_old() {
        for (ttl, expected) in [
            (TTL / 2, MdnsEvent::Nothing),
            (TTL / 2 - 1, MdnsEvent::Asked { kind: A, unicast: false, is_probe: false }),
        ] {
            let mut out = Vec::new();
            write_header(0, 0, [1, 1, 0, 0], &mut out);
            write_question(name("host.local").octets(), A, INTERNET, &mut out);
            let data = &[10, 0, 0, 5];
            write_record(&FIRST_NAME, &DnsRecord { kind: A, class: INTERNET, ttl, data }, &mut out);
            assert_eq!(event(&out, MDNS_PORT, false), Ok(expected), "{ttl} s");
        }
    }

    #[test]
    fn other_data_for_the_name_is_a_conflict_and_the_last_answer_of_another_is_not() {
        let response = |last, ttl| {
            let mut out = Vec::new();
            write_announcement(&name("host.local"), &records(last), ttl, &mut out);
            out
        };
        for is_probing in [false, true] {
            assert_eq!(event(&response(6, TTL), MDNS_PORT, is_probing), Ok(MdnsEvent::Conflict));
            assert_eq!(event(&response(5, TTL), MDNS_PORT, is_probing), Ok(MdnsEvent::Nothing));
            assert_eq!(event(&response(6, 0), MDNS_PORT, is_probing), Ok(MdnsEvent::Nothing));
        }
        assert_eq!(event(&response(6, TTL), 40_000, false), Err("bad_port"));
        let mut error = response(6, TTL);
        error[3] |= 3;
        assert_eq!(event(&error, MDNS_PORT, false), Err("bad_flags"));
        for len in 12..response(6, TTL).len() {
            let cut = &response(6, TTL)[..len];
            assert_eq!(event(cut, MDNS_PORT, false), Err("truncated"), "{len}");
        }
    }
}
