//! Plays a script against a [`Subject`]: injected packets are sent; expected ones must arrive in
//! order and in time, and no others may arrive.

use std::{collections::VecDeque, fmt::Write};

use squall_units::Nanos;

use super::{
    packet::{self, Ends, Harm, RawSegment},
    script::{
        ACK, Action, Awaited, Family, Gone, Icmp, IpPart, PSH, SYN, Script, Segment, Step, Target,
        TcpOption, Verb,
    },
};

/// The subject of a test: a TCP implementation and an application.
pub trait Subject {
    /// Time on its own clock.
    fn now(&mut self) -> Nanos;
    /// Waits until `until`, or until there is something to report.
    fn wait(&mut self, until: Nanos) -> Vec<(Nanos, Observation)>;
    /// Delivers an IP packet to the subject.
    fn inject(&mut self, packet: &[u8]);
    fn act(&mut self, verb: &Verb) -> Result<(), String>;
    /// Whether the previous flow has ended, for subjects without an event for it.
    fn is_gone(&mut self) -> bool {
        false
    }
}

#[derive(Debug)]
pub enum Observation {
    /// The subject sent an IP packet.
    Packet(Vec<u8>),
    Established,
    /// The application received these octets.
    Received(Vec<u8>),
    PeerClosed,
    Gone(Gone),
}

/// Which steps are played, and the tolerance.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub target: Target,
    pub family: Family,
    pub tolerance: Nanos,
    /// Additional tolerance, as a fraction of the time since the previous step: timers follow from
    /// measured round-trip times, which are longer on a busy machine.
    pub stretch: f64,
    /// How long to wait for events that have their own timestamp and are reported late; the next
    /// step counts from the time when the player was ready. Zero in virtual time.
    pub grace: Nanos,
}

/// Plays `script`. An error is text for a person: the expected and the actual event, and the steps
/// before.
pub fn play(script: &Script, mode: Mode, subject: &mut dyn Subject) -> Result<(), String> {
    let start = subject.now();
    let mut player = Player {
        mode,
        tolerance: mode.tolerance,
        start,
        subject,
        ends: Ends::of(mode.family),
        packets: VecDeque::new(),
        events: VecDeque::new(),
        gone: None,
        local_isn: None,
        peer_isn: script.isn,
        first_isn: script.isn,
        first_timestamp: None,
        last_timestamp: 0,
        sent: 0,
        received: 0,
        last_packet: vec![],
        trace: vec![],
    };
    let mut base = start;
    for step in
        script.steps.iter().filter(|step| step.target == Target::Both || step.target == mode.target)
    {
        base = player
            .step(base, step)
            .map_err(|problem| player.describe_failure(script, Some(step), &problem))?;
    }
    player.end(base).map_err(|problem| player.describe_failure(script, None, &problem))
}

struct Player<'a> {
    mode: Mode,
    /// Tolerance of the current step.
    tolerance: Nanos,
    start: Nanos,
    subject: &'a mut dyn Subject,
    ends: Ends,
    packets: VecDeque<(Nanos, Vec<u8>)>,
    events: VecDeque<(Nanos, Event)>,
    gone: Option<Gone>,
    /// Known once the first SYN was seen.
    local_isn: Option<u32>,
    peer_isn: u32,
    first_isn: u32,
    /// The script's first timestamp, and the actual one.
    first_timestamp: Option<(u32, u32)>,
    last_timestamp: u32,
    /// Octets that the application has sent.
    sent: u32,
    /// Octets that the application has received.
    received: u32,
    last_packet: Vec<u8>,
    trace: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Established,
    Received(u32),
    PeerClosed,
    Gone(Gone),
}

impl Player<'_> {
    /// Plays `step`, which is relative to `base`. Returns its time.
    fn step(&mut self, base: Nanos, step: &Step) -> Result<Nanos, String> {
        self.tolerance =
            self.mode.tolerance + Nanos((step.time.to.0 as f64 * self.mode.stretch) as u64);
        let (from, to) = (base + step.time.from, base + step.time.to);
        match &step.action {
            Action::Expect(expected) => {
                let at = self.expect(step, expected, from, to)?;
                return Ok(if from == to { from } else { at.clamp(from, to) });
            }
            Action::Await(awaited) => {
                let at = self.awaits(awaited, from, to)?;
                return Ok(if from == to { from } else { at.clamp(from, to) });
            }
            Action::Quiet
            | Action::NextFlow(_)
            | Action::Inject(_)
            | Action::InjectIcmp(_)
            | Action::Do(_) => {}
        }
        self.pass(to)?;
        let done = self.subject.now();
        match &step.action {
            Action::Inject(segment) => self.inject(segment, to),
            Action::InjectIcmp(icmp) => self.inject_icmp(icmp, to)?,
            Action::Do(verb) => self.act(verb, to)?,
            Action::NextFlow(distance) => {
                self.local_isn = None;
                self.peer_isn = self.first_isn.wrapping_add(*distance);
                (self.first_timestamp, self.sent, self.received) = (None, 0, 0);
                self.subject.act(&Verb::NextFlow)?;
            }
            Action::Expect(_) | Action::Await(_) | Action::Quiet => {}
        }
        // In real time the step may have been late; answers to it are then late by the same amount.
        Ok(if self.mode.grace == Nanos::ZERO { to } else { done.max(to) })
    }

    fn look(&mut self, until: Nanos) {
        for (at, sight) in self.subject.wait(until) {
            let event = match sight {
                Observation::Packet(packet) => {
                    let note = match packet::read(&self.ends, &packet) {
                        Ok(None) => continue,
                        Ok(Some(seen)) => self.describe(&seen),
                        Err(problem) => problem,
                    };
                    self.note(at, &format!("> {note}"));
                    self.packets.push_back((at, packet));
                    continue;
                }
                Observation::Established => Event::Established,
                Observation::Received(octets) => {
                    let expected = packet::octets(1, self.received, octets.len() as u32);
                    if octets != expected {
                        self.note(
                            at,
                            "the application was given octets that the peer did not send there",
                        );
                        self.packets.push_back((at, vec![]));
                    }
                    self.received += octets.len() as u32;
                    Event::Received(octets.len() as u32)
                }
                Observation::PeerClosed => Event::PeerClosed,
                Observation::Gone(gone) => Event::Gone(gone),
            };
            if let Event::Gone(gone) = event {
                self.gone = Some(gone);
            }
            self.note(at, &format!("{event:?}"));
            match (self.events.back_mut(), event) {
                (Some((last, Event::Received(before))), Event::Received(now)) => {
                    *before += now;
                    *last = at;
                }
                _ => self.events.push_back((at, event)),
            }
        }
    }

    /// Waits until `time`; the subject must not send a packet meanwhile.
    fn pass(&mut self, time: Nanos) -> Result<(), String> {
        loop {
            if let Some((at, packet)) = self.packets.pop_front() {
                let seen = self.text(&packet);
                return Err(format!(
                    "nothing is expected to be sent before this, but at {} came\n  {seen}",
                    self.when(at)
                ));
            }
            if self.subject.now() >= time {
                return Ok(());
            }
            self.look(time);
        }
    }

    /// Packets that remain at the end were not expected.
    fn end(&mut self, last: Nanos) -> Result<(), String> {
        self.pass(last + self.mode.tolerance)?;
        match self.events.front() {
            Some((at, event)) => {
                Err(format!("the script does not expect, at {}: {event:?}", self.when(*at)))
            }
            None => Ok(()),
        }
    }

    fn inject(&mut self, segment: &Segment, at: Nanos) {
        for part in parts(segment) {
            let raw = self.absolute(&part);
            let IpPart { bad_checksum, data_offset, cut, .. } = part.ip;
            let packet = packet::write(&self.ends, &raw, Harm { bad_checksum, data_offset, cut });
            let note = format!("< {}", self.describe_injected(&raw));
            self.note(at, &note);
            self.subject.inject(&packet);
        }
    }

    fn inject_icmp(&mut self, icmp: &Icmp, at: Nanos) -> Result<(), String> {
        let mut quoted = self.last_packet.clone();
        let header = if self.ends.local.is_ipv4() { 20 } else { 40 };
        if quoted.len() < header + 8 {
            return Err("there is no segment yet that an ICMP error could quote".into());
        }
        if let Some(seq) = icmp.seq {
            let seq = seq.wrapping_add(self.local_isn.unwrap_or(0));
            quoted[header + 4..header + 8].copy_from_slice(&seq.to_be_bytes());
        }
        self.note(at, &format!("< icmp {:?}", icmp.kind));
        self.subject.inject(&packet::write_icmp(&self.ends, icmp.kind, &quoted));
        Ok(())
    }

    fn act(&mut self, verb: &Verb, at: Nanos) -> Result<(), String> {
        self.note(at, &format!("{verb:?}"));
        if let Verb::Send(octets) = verb {
            self.sent += octets;
        }
        self.subject.act(verb)
    }

    /// Waits for an event in `from..=to`. Returns its time.
    fn awaits(&mut self, awaited: &Awaited, from: Nanos, to: Nanos) -> Result<Nanos, String> {
        let wanted = match awaited {
            Awaited::Established => Event::Established,
            Awaited::Received(octets) => Event::Received(*octets),
            Awaited::PeerClosed => Event::PeerClosed,
            Awaited::Gone(gone) => Event::Gone(*gone),
        };
        let deadline = to + self.tolerance + self.mode.grace;
        loop {
            match (self.events.front().copied(), wanted) {
                (Some((_, Event::Received(some))), Event::Received(all)) if some < all => {}
                (Some((at, event)), _) if event == wanted => {
                    self.events.pop_front();
                    // A subject whose events have no timestamps reports them when it is polled.
                    self.check_time(at, from, to + self.mode.grace)?;
                    return Ok(at);
                }
                (Some((at, event)), _) => {
                    return Err(format!(
                        "expected {awaited}, but the application was told at {}: {event:?}",
                        self.when(at)
                    ));
                }
                (None, Event::Gone(Gone::Closed)) if self.subject.is_gone() => {
                    return Ok(self.subject.now());
                }
                (None, _) => {}
            }
            if self.subject.now() >= deadline {
                let had =
                    self.events.front().map_or("nothing".into(), |(_, event)| format!("{event:?}"));
                return Err(format!(
                    "expected {awaited} until {}: the application was told {had}",
                    self.when(deadline)
                ));
            }
            // In short waits, for subjects that are polled.
            let next = if wanted == Event::Gone(Gone::Closed) {
                self.subject.now() + Nanos(2_000_000)
            } else {
                deadline
            };
            self.look(next.min(deadline));
        }
    }

    fn check_time(&self, at: Nanos, from: Nanos, to: Nanos) -> Result<(), String> {
        let (earliest, latest) = (from.saturating_sub(self.tolerance), to + self.tolerance);
        if (earliest..=latest).contains(&at) {
            return Ok(());
        }
        let (early, late) = (self.when(earliest), self.when(latest));
        Err(format!("it came at {}, expected from {early} to {late}", self.when(at)))
    }

    fn expect(
        &mut self,
        step: &Step,
        expected: &Segment,
        from: Nanos,
        to: Nanos,
    ) -> Result<Nanos, String> {
        let parts = parts(expected);
        let last = parts.len() - 1;
        let mut came = from;
        for (i, part) in parts.iter().enumerate() {
            let deadline = to + self.tolerance + self.mode.grace;
            let (at, packet) = loop {
                if let Some(first) = self.packets.pop_front() {
                    break first;
                }
                if self.subject.now() >= deadline {
                    let nth = if last == 0 {
                        String::new()
                    } else {
                        format!(" ({} of {})", i + 1, last + 1)
                    };
                    return Err(format!("nothing came until {}{nth}", self.when(deadline)));
                }
                self.look(deadline);
            };
            let seen = packet::read(&self.ends, &packet)?
                .expect("packets of other flows are left out when they are seen");
            self.last_packet = packet;
            self.compare(step, part, &seen).map_err(|what| {
                format!(
                    "{what}\n  expected > {}\n  came     > {}",
                    self.describe_expected(part),
                    self.describe(&seen)
                )
            })?;
            self.check_time(at, from, to)?;
            came = at;
        }
        Ok(came)
    }

    /// Compares `seen` with the expected segment. The error describes the difference.
    fn compare(
        &mut self,
        step: &Step,
        expected: &Segment,
        seen: &RawSegment,
    ) -> Result<(), String> {
        // Numbers are relative to the first SYN; before it they have no base.
        if seen.flags & SYN != 0 && self.local_isn.is_none() {
            self.local_isn = Some(seen.seq.wrapping_sub(expected.start));
        }
        let exact = self.mode.target == Target::Squall || step.target == Target::Linux;
        // A sender may push anywhere before the end of its data (RFC 9293 3.9.1.2).
        let is_end = expected.end == expected.start || expected.end.wrapping_sub(1) == self.sent;
        let looked_at = if is_end { 0xff } else { !PSH };
        if seen.flags & looked_at != expected.flags & looked_at {
            return Err("other flags".into());
        }
        let local = self.local_isn.unwrap_or(0);
        let len = expected.end.wrapping_sub(expected.start);
        if seen.seq.wrapping_sub(local) != expected.start || seen.payload.len() as u32 != len {
            return Err("other octets".into());
        }
        if let Some(ack) = expected.ack
            && seen.ack.wrapping_sub(self.peer_isn) != ack
        {
            return Err("another acknowledgment number".into());
        }
        if seen.flags & ACK == 0 && seen.ack != 0 && expected.ack.is_none() {
            return Err("an acknowledgment number without the flag".into());
        }
        if let Some(window) = expected.window
            && exact
            && seen.window != window
        {
            return Err("another window".into());
        }
        if let Some(urgent) = expected.urgent
            && seen.urgent != urgent
        {
            return Err("another urgent pointer".into());
        }
        if let Some(ecn) = expected.ip.ecn
            && seen.ecn != ecn
        {
            return Err(format!("other ECN bits: {:02b}", seen.ecn));
        }
        let first = expected.start.wrapping_sub(1);
        let known = first < self.sent && self.sent - first >= len;
        if known && seen.payload != packet::octets(0, first, len) {
            return Err("octets that the application did not send there".into());
        }
        self.compare_options(expected, seen, exact)
    }

    fn compare_options(
        &mut self,
        expected: &Segment,
        seen: &RawSegment,
        exact: bool,
    ) -> Result<(), String> {
        let is_padding = |option: &&TcpOption| matches!(option, TcpOption::Nop | TcpOption::End);
        for option in &seen.options {
            if let TcpOption::Timestamps { value: Some(value), .. } = option {
                self.last_timestamp = *value;
            }
        }
        let Some(wanted) = &expected.options else { return Ok(()) };
        let mut left: Vec<_> = seen.options.iter().filter(|option| !is_padding(option)).collect();
        for option in wanted.iter().filter(|option| !is_padding(option)) {
            let Some(at) = left.iter().position(|seen| self.matches(option, seen, exact)) else {
                return Err(format!("lacks the option {}", option_text(option)));
            };
            let taken = left.remove(at);
            if let (
                TcpOption::Timestamps { value: Some(script), .. },
                TcpOption::Timestamps { value: Some(real), .. },
            ) = (option, taken)
            {
                self.first_timestamp.get_or_insert((*script, *real));
            }
        }
        match left.first() {
            Some(option) => {
                Err(format!("has the option {}, too", option_text(&self.relative(option))))
            }
            None => Ok(()),
        }
    }

    fn matches(&self, wanted: &TcpOption, seen: &TcpOption, exact: bool) -> bool {
        match (wanted, &self.relative(seen)) {
            (TcpOption::Mss(wanted), TcpOption::Mss(seen)) => wanted.is_none() || wanted == seen,
            (TcpOption::WindowScale(wanted), TcpOption::WindowScale(seen)) => {
                !exact || wanted.is_none() || wanted == seen
            }
            (
                TcpOption::Timestamps { value, echo },
                TcpOption::Timestamps { value: seen_value, echo: seen_echo },
            ) => {
                let is_first = self.first_timestamp.is_none();
                (!exact || is_first || value.is_none() || value == seen_value)
                    && (echo.is_none() || echo == seen_echo)
            }
            (wanted, seen) => wanted == seen,
        }
    }

    /// Converts an option sent by the subject to the script's numbers.
    fn relative(&self, option: &TcpOption) -> TcpOption {
        match option {
            TcpOption::Sack(blocks) => {
                let base = self.peer_isn;
                TcpOption::Sack(
                    blocks
                        .iter()
                        .map(|(l, r)| (l.wrapping_sub(base), r.wrapping_sub(base)))
                        .collect(),
                )
            }
            TcpOption::Timestamps { value: Some(value), echo } => {
                let (script, real) = self.first_timestamp.unwrap_or((*value, *value));
                TcpOption::Timestamps {
                    value: Some(value.wrapping_sub(real).wrapping_add(script)),
                    echo: *echo,
                }
            }
            other => other.clone(),
        }
    }

    /// Converts a segment of the peer to wire numbers.
    fn absolute(&self, part: &Segment) -> RawSegment {
        let local = self.local_isn.unwrap_or(0);
        let options = part.options.iter().flatten().map(|option| match option {
            TcpOption::Sack(blocks) => TcpOption::Sack(
                blocks
                    .iter()
                    .map(|(l, r)| (l.wrapping_add(local), r.wrapping_add(local)))
                    .collect(),
            ),
            TcpOption::Timestamps { value, echo } => {
                let (script, real) = self.first_timestamp.unwrap_or_default();
                let echo = echo.map_or(self.last_timestamp, |echo| match echo {
                    0 => 0,
                    echo => echo.wrapping_sub(script).wrapping_add(real),
                });
                TcpOption::Timestamps { value: *value, echo: Some(echo) }
            }
            other => other.clone(),
        });
        RawSegment {
            flags: part.flags,
            seq: part.start.wrapping_add(self.peer_isn),
            ack: part.ack.map_or(0, |ack| ack.wrapping_add(local)),
            window: part.window.unwrap_or(65_535),
            urgent: part.urgent.unwrap_or(0),
            options: options.collect(),
            payload: {
                let first =
                    if part.flags & SYN != 0 { part.start } else { part.start.wrapping_sub(1) };
                packet::octets(1, first, part.end.wrapping_sub(part.start))
            },
            ecn: part.ip.ecn.unwrap_or(0),
        }
    }

    fn when(&self, at: Nanos) -> String {
        format!("{:.6}", at.saturating_sub(self.start).as_secs_f64())
    }

    fn note(&mut self, at: Nanos, what: &str) {
        let line = format!("{} {what}", self.when(at));
        self.trace.push(line);
    }

    fn text(&self, packet: &[u8]) -> String {
        match packet::read(&self.ends, packet) {
            Ok(Some(seen)) => format!("> {}", self.describe(&seen)),
            Ok(None) => "> a packet of another flow".into(),
            Err(problem) => format!("> {problem}"),
        }
    }

    fn describe(&self, seen: &RawSegment) -> String {
        let options: Vec<_> = seen.options.iter().map(|option| self.relative(option)).collect();
        let seq = seen.seq.wrapping_sub(self.local_isn.unwrap_or(if seen.flags & SYN != 0 {
            seen.seq
        } else {
            0
        }));
        segment_text(seen, seq, seen.ack.wrapping_sub(self.peer_isn), &options)
    }

    fn describe_injected(&self, raw: &RawSegment) -> String {
        let ack = raw.ack.wrapping_sub(self.local_isn.unwrap_or(0));
        segment_text(raw, raw.seq.wrapping_sub(self.peer_isn), ack, &raw.options)
    }

    fn describe_expected(&self, part: &Segment) -> String {
        let mut text = format!(
            "{} {}:{}({})",
            super::script::flag_letters(part.flags),
            part.start,
            part.end,
            part.end.wrapping_sub(part.start)
        );
        if let Some(ack) = part.ack {
            let _ = write!(text, " ack {ack}");
        }
        if let Some(window) = part.window {
            let _ = write!(text, " win {window}");
        }
        if let Some(options) = &part.options {
            let options: Vec<_> = options.iter().map(option_text).collect();
            let _ = write!(text, " <{}>", options.join(","));
        }
        text
    }

    fn describe_failure(&self, script: &Script, step: Option<&Step>, problem: &str) -> String {
        let place = match step {
            Some(step) => format!("{}:{}: {}", script.file, step.line, step.text),
            None => format!("{}: at the end", script.file),
        };
        let shown = self.trace.len().saturating_sub(16);
        let before: String =
            self.trace[shown..].iter().fold(String::new(), |text, line| text + "\n    " + line);
        format!("{place}\n  {}\n  what went before:{before}", problem.replace('\n', "\n  "))
    }
}

/// The segments that one line describes.
fn parts(segment: &Segment) -> Vec<Segment> {
    let count = segment.count.unwrap_or(1);
    let len = segment.end.wrapping_sub(segment.start);
    let each = len.div_ceil(count);
    let at = |i: u32| segment.start.wrapping_add((each * i).min(len));
    (0..count)
        .map(|i| Segment { start: at(i), end: at(i + 1), count: None, ..segment.clone() })
        .collect()
}

fn segment_text(raw: &RawSegment, seq: u32, ack: u32, options: &[TcpOption]) -> String {
    let len = raw.payload.len() as u32;
    let mut text = match raw.ecn {
        0 => String::new(),
        ecn => format!("[{}] ", ["", "ect1", "ect0", "ce"][usize::from(ecn)]),
    };
    let _ = write!(
        text,
        "{} {seq}:{}({len})",
        super::script::flag_letters(raw.flags),
        seq.wrapping_add(len)
    );
    if raw.flags & ACK != 0 {
        let _ = write!(text, " ack {ack}");
    }
    let _ = write!(text, " win {}", raw.window);
    if !options.is_empty() {
        let options: Vec<_> = options.iter().map(option_text).collect();
        let _ = write!(text, " <{}>", options.join(","));
    }
    text
}

fn option_text(option: &TcpOption) -> String {
    let number = |n: Option<u32>| n.map_or("*".into(), |n| n.to_string());
    match option {
        TcpOption::Mss(octets) => format!("mss {}", number(octets.map(u32::from))),
        TcpOption::WindowScale(shift) => format!("wscale {}", number(shift.map(u32::from))),
        TcpOption::SackPermitted => "sackOK".into(),
        TcpOption::Sack(blocks) => blocks
            .iter()
            .fold("sack".into(), |text, (left, right)| format!("{text} {left}:{right}")),
        TcpOption::Timestamps { value, echo } => {
            format!("TS val {} ecr {}", number(*value), number(*echo))
        }
        TcpOption::Nop => "nop".into(),
        TcpOption::End => "eol".into(),
        TcpOption::Octets(octets) => {
            octets.iter().fold("hex ".into(), |text, octet| format!("{text}{octet:02x}"))
        }
    }
}
