//! Stub resolvers (RFC 1034 section 5.3.1, RFC 1123 section 6.1.3.3) of the hosts of a group: open
//! questions, their repetitions, and their outcomes. Times and random numbers are arguments.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
};

use squall_units::{Nanos, below};

use crate::dns::{
    DnsReader, INTERNET, Name, NameTemplate, OPCODE, RCODE, RECURSION_DESIRED, RESPONSE, TRUNCATED,
    write_header, write_question,
};

/// The questions of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverSettings {
    /// Names that hosts ask in turn, each with all types. At least one of each.
    pub names: Vec<NameTemplate>,
    pub kinds: Vec<u16>,
    /// `None`: the server that DHCP gave.
    pub server: Option<IpAddr>,
    /// Questions per second of the group, at least 1, and of each host.
    pub rate: u64,
    pub count: u32,
    /// A question is repeated after this time without an answer. 5 s by default, as in resolv.conf.
    pub timeout: Nanos,
    /// Transmissions of a question at most: 2 by default.
    pub tries: u8,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            kinds: vec![crate::dns::A],
            server: None,
            rate: 100,
            count: 1,
            timeout: Nanos(5_000_000_000),
            tries: 2,
        }
    }
}

impl ResolverSettings {
    /// Writes the name of a question, which has its number from 0. Returns its type.
    fn name_of(&self, host: u32, number: u64, name: &mut Name) -> u16 {
        let kinds = self.kinds.len().max(1) as u64;
        let template = self.names.get((number / kinds % self.names.len().max(1) as u64) as usize);
        if let Some(template) = template {
            // The name fits, because it would with the highest numbers.
            let _ = template.write(host + 1, number / kinds + 1, name);
        }
        self.kinds.get((number % kinds) as usize).copied().unwrap_or(crate::dns::A)
    }
}

/// A transmission of a question: the host, its UDP port, and the identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    pub host: u32,
    pub port: u16,
    pub id: u16,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    number: u64,
    tries: u8,
    /// The first transmission, and the time at which the question is repeated or given up.
    began: Nanos,
    due: Nanos,
}

/// The outcome of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The answer has records of the wanted type.
    Answered,
    /// The name exists, but has none.
    Empty,
    /// The name does not exist (NXDOMAIN).
    NoName,
    /// The server sent another error: its word.
    Failed(&'static str),
    /// The answer did not fit into a datagram. There is no repetition over TCP.
    Truncated,
}

/// A question whose time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    Repeat(Question),
    GivenUp(Question),
}

/// First of the dynamic ports (RFC 6335 section 6), and their number.
const FIRST_PORT: u16 = 49_152;
const PORTS: u64 = 16_384;

/// The open questions of a group.
#[derive(Debug, Default)]
pub struct Resolver {
    open: HashMap<Question, Open>,
    /// Times at which questions are overdue, in order, because all wait equally long. One whose
    /// time has changed is in it again.
    deadlines: VecDeque<(Nanos, Question)>,
}

impl Resolver {
    /// Begins a question with this number. Port and identifier are random (RFC 5452 section 9.2).
    pub fn ask(
        &mut self,
        now: Nanos,
        host: u32,
        number: u64,
        chance: u64,
        settings: &ResolverSettings,
    ) -> Question {
        let port = FIRST_PORT + below(chance, PORTS) as u16;
        let mut question = Question { host, port, id: chance as u16 };
        while self.open.contains_key(&question) {
            question.id = question.id.wrapping_add(1);
        }
        let due = now + settings.timeout;
        self.open.insert(question, Open { number, tries: 1, began: now, due });
        self.deadlines.push_back((due, question));
        question
    }

    /// Appends the message of an open question.
    pub fn write(&self, question: &Question, settings: &ResolverSettings, out: &mut Vec<u8>) {
        let Some(open) = self.open.get(question) else { return };
        let mut name = Name::default();
        let kind = settings.name_of(question.host, open.number, &mut name);
        write_header(question.id, RECURSION_DESIRED, [1, 0, 0, 0], out);
        write_question(name.octets(), kind, INTERNET, out);
    }

    /// Handles a datagram to a port of a host. Returns the outcome, and the time since the first
    /// transmission.
    ///
    /// # Errors
    /// The reason for which the message is ignored.
    pub fn receive(
        &mut self,
        now: Nanos,
        (host, port): (u32, u16),
        message: &[u8],
        settings: &ResolverSettings,
    ) -> Result<(Resolved, Nanos), &'static str> {
        let (header, mut reader) = DnsReader::new(message)?;
        let question = Question { host, port, id: header.id };
        let Some(open) = self.open.get(&question).copied() else { return Err("no_question") };
        if header.flags & RESPONSE == 0 || header.flags & OPCODE != 0 {
            return Err("not_a_response");
        }
        // An answer to another question may be forged (RFC 5452 section 9.1).
        let (mut name, mut asked) = (Name::default(), Name::default());
        let kind = settings.name_of(host, open.number, &mut asked);
        if header.questions != 1
            || reader.question(&mut name)? != (kind, INTERNET)
            || name.octets() != asked.octets()
        {
            return Err("wrong_question");
        }
        let mut found = false;
        for _ in 0..header.answers {
            let record = match reader.record(&mut name) {
                Ok(record) => record,
                // A truncated message may end in a record.
                Err(_) if header.flags & TRUNCATED != 0 => break,
                Err(reason) => return Err(reason),
            };
            found |= (record.kind, record.class) == (kind, INTERNET);
        }
        self.open.remove(&question);
        let resolved = match header.flags & RCODE {
            _ if header.flags & TRUNCATED != 0 => Resolved::Truncated,
            0 if found => Resolved::Answered,
            0 => Resolved::Empty,
            3 => Resolved::NoName,
            1 => Resolved::Failed("format_error"),
            2 => Resolved::Failed("server_failure"),
            4 => Resolved::Failed("not_implemented"),
            5 => Resolved::Failed("refused"),
            _ => Resolved::Failed("other"),
        };
        Ok((resolved, now.saturating_sub(open.began)))
    }

    /// When [`Resolver::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        self.deadlines.front().map(|(due, _)| *due)
    }

    /// The next question whose time is over. To be called until it returns `None`.
    pub fn timer(&mut self, now: Nanos, settings: &ResolverSettings) -> Option<Overdue> {
        while let Some((due, question)) = self.deadlines.pop_front_if(|(due, _)| *due <= now) {
            // Others were answered meanwhile, and the port and identifier may be in use again.
            let Some(open) = self.open.get_mut(&question).filter(|open| open.due == due) else {
                continue;
            };
            if open.tries >= settings.tries {
                self.open.remove(&question);
                return Some(Overdue::GivenUp(question));
            }
            open.tries += 1;
            open.due = now + settings.timeout;
            self.deadlines.push_back((open.due, question));
            return Some(Overdue::Repeat(question));
        }
        None
    }

    /// Forgets a question that cannot be sent.
    pub fn forget(&mut self, question: &Question) {
        self.open.remove(question);
    }

    /// Number of open questions.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::{A, AAAA, DnsRecord, FIRST_NAME, write_record};

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn settings() -> ResolverSettings {
        let names = ["www{}.example", "q{q}.example"].map(|name| NameTemplate::new(name).unwrap());
        ResolverSettings {
            names: names.into(),
            kinds: vec![A, AAAA],
            ..ResolverSettings::default()
        }
    }

    /// The answer with these flags and a number of addresses.
    fn answer(asked: &[u8], flags: u16, addresses: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let id = u16::from_be_bytes([asked[0], asked[1]]);
        write_header(id, RESPONSE | flags, [1, addresses, 0, 0], &mut out);
        out.extend(&asked[12..]);
        let kind = u16::from_be_bytes([asked[asked.len() - 4], asked[asked.len() - 3]]);
        let data = &[10; 16][..if kind == A { 4 } else { 16 }];
        for _ in 0..addresses {
            let record = DnsRecord { kind, class: INTERNET, ttl: 60, data };
            write_record(&FIRST_NAME, &record, &mut out);
        }
        out
    }

    fn asked(resolver: &mut Resolver, number: u64) -> (Question, Vec<u8>) {
        let question = resolver.ask(seconds(10), 4, number, number, &settings());
        let mut out = Vec::new();
        resolver.write(&question, &settings(), &mut out);
        (question, out)
    }

    #[test]
    fn names_and_types_take_turns() {
        let mut resolver = Resolver::default();
        let mut texts = Vec::new();
        for number in 0..5 {
            let (question, message) = asked(&mut resolver, number);
            assert!(question.port >= FIRST_PORT);
            let (header, mut reader) = DnsReader::new(&message).unwrap();
            assert_eq!((header.flags, header.questions), (RECURSION_DESIRED, 1));
            let mut name = Name::default();
            let (kind, _) = reader.question(&mut name).unwrap();
            texts.push((String::from_utf8(name.octets().to_vec()).unwrap(), kind));
        }
        let expected = [
            ("\x04www5\x07example\0".to_owned(), A),
            ("\x04www5\x07example\0".to_owned(), AAAA),
            ("\x02q2\x07example\0".to_owned(), A),
            ("\x02q2\x07example\0".to_owned(), AAAA),
            ("\x04www5\x07example\0".to_owned(), A),
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_question_is_repeated_after_5_seconds_and_given_up_after_10() {
        let mut resolver = Resolver::default();
        let (question, _) = asked(&mut resolver, 0);
        assert_eq!(resolver.due(), Some(seconds(15)));
        assert_eq!(resolver.timer(seconds(15) - Nanos(1), &settings()), None);
        assert_eq!(resolver.timer(seconds(15), &settings()), Some(Overdue::Repeat(question)));
        assert_eq!(resolver.timer(seconds(15), &settings()), None);
        assert_eq!(resolver.due(), Some(seconds(20)));
        assert_eq!(resolver.timer(seconds(20), &settings()), Some(Overdue::GivenUp(question)));
        assert_eq!((resolver.due(), resolver.is_empty()), (None, true));
        let three = ResolverSettings { tries: 3, timeout: seconds(1), ..settings() };
        let question = resolver.ask(seconds(30), 4, 0, 0, &three);
        for at in [31, 32] {
            assert_eq!(resolver.timer(seconds(at), &three), Some(Overdue::Repeat(question)));
        }
        assert_eq!(resolver.timer(seconds(33), &three), Some(Overdue::GivenUp(question)));
    }

    #[test]
    fn an_answer_to_the_first_transmission_counts_after_the_second() {
        let mut resolver = Resolver::default();
        let (question, message) = asked(&mut resolver, 0);
        resolver.timer(seconds(15), &settings());
        let at = (4, question.port);
        let found = resolver.receive(seconds(16), at, &answer(&message, 0, 1), &settings());
        assert_eq!(found, Ok((Resolved::Answered, seconds(6))));
        assert_eq!(resolver.timer(seconds(20), &settings()), None, "it has its answer");
        let again = resolver.receive(seconds(16), at, &answer(&message, 0, 1), &settings());
        assert_eq!(again, Err("no_question"));
    }

    #[test]
    fn answers_without_addresses_and_errors_are_distinguished() {
        for (flags, addresses, expected) in [
            (0, 2, Resolved::Answered),
            (0, 0, Resolved::Empty),
            (3, 0, Resolved::NoName),
            (1, 0, Resolved::Failed("format_error")),
            (2, 0, Resolved::Failed("server_failure")),
            (4, 0, Resolved::Failed("not_implemented")),
            (5, 0, Resolved::Failed("refused")),
            (9, 0, Resolved::Failed("other")),
            (TRUNCATED, 1, Resolved::Truncated),
        ] {
            for number in [0, 1] {
                let mut resolver = Resolver::default();
                let (question, message) = asked(&mut resolver, number);
                let mut answer = answer(&message, flags, addresses);
                if expected == Resolved::Truncated {
                    answer.truncate(answer.len() - 3);
                }
                let found = resolver.receive(seconds(11), (4, question.port), &answer, &settings());
                assert_eq!(found, Ok((expected, seconds(1))));
            }
        }
    }

    #[test]
    fn answers_to_other_questions_are_ignored_and_do_not_end_them() {
        let mut resolver = Resolver::default();
        let (question, message) = asked(&mut resolver, 0);
        let right = answer(&message, 0, 1);
        let at = (4, question.port);
        let mut reason =
            |at, octets: &[u8]| resolver.receive(seconds(11), at, octets, &settings()).unwrap_err();
        assert_eq!(reason((5, question.port), &right), "no_question", "of another host");
        assert_eq!(reason((4, question.port ^ 1), &right), "no_question", "at another port");
        let changed = |place: usize, octet: u8| {
            let mut octets = right.clone();
            octets[place] ^= octet;
            octets
        };
        assert_eq!(reason(at, &changed(1, 1)), "no_question", "another identifier");
        assert_eq!(reason(at, &message), "not_a_response");
        assert_eq!(reason(at, &changed(14, 1)), "wrong_question", "another name");
        assert_eq!(reason(at, &changed(message.len() - 3, 1)), "wrong_question", "another type");
        assert_eq!(reason(at, &changed(5, 1)), "wrong_question", "none");
        assert_eq!(reason(at, &right[..right.len() - 1]), "truncated");
        assert_eq!(resolver.len(), 1);
        // The case of letters does not matter.
        let found = resolver.receive(seconds(11), at, &changed(14, 0x20), &settings());
        assert_eq!(found, Ok((Resolved::Answered, seconds(1))));
    }

    #[test]
    fn each_question_has_its_own_time() {
        let mut resolver = Resolver::default();
        let all: Vec<Question> = (0..3)
            .map(|number| resolver.ask(seconds(10 + number), 4, number, number << 48, &settings()))
            .collect();
        for (number, question) in all.iter().enumerate() {
            let due = seconds(15 + number as u64);
            assert_eq!(resolver.due(), Some(due));
            assert_eq!(resolver.timer(due, &settings()), Some(Overdue::Repeat(*question)));
        }
        for (number, question) in all.iter().enumerate() {
            let due = seconds(20 + number as u64);
            assert_eq!(resolver.timer(due, &settings()), Some(Overdue::GivenUp(*question)));
        }
        assert!(resolver.is_empty());
    }

    #[test]
    fn a_question_that_is_sent_once_is_given_up_after_its_time() {
        let once = ResolverSettings { tries: 1, timeout: seconds(2), ..settings() };
        let mut resolver = Resolver::default();
        let question = resolver.ask(seconds(10), 4, 0, 0, &once);
        assert_eq!(resolver.timer(seconds(12) - Nanos(1), &once), None);
        assert_eq!(resolver.timer(seconds(12), &once), Some(Overdue::GivenUp(question)));
    }

    #[test]
    fn an_answer_after_the_question_was_given_up_is_ignored() {
        let mut resolver = Resolver::default();
        let (question, message) = asked(&mut resolver, 0);
        resolver.timer(seconds(15), &settings());
        resolver.timer(seconds(20), &settings());
        let at = (4, question.port);
        let late = resolver.receive(seconds(21), at, &answer(&message, 0, 1), &settings());
        assert_eq!(late, Err("no_question"));
    }
}
