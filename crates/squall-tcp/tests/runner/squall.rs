//! This stack as the subject: in virtual time, without a network.

use std::{cell::RefCell, rc::Rc};

use squall_tcp::{
    Application, ClassId, Congestion, Event, FlowId, FlowKind, Output, Piece, Reason, Settings,
    Socket, Stack, Tunables, Tuple,
};
use squall_units::{Cut, Nanos};

use super::{
    packet::{self, Ends},
    play::{Observation, Subject},
    script::{Family, Gone, Script, Setting, Verb},
};

pub struct Squall {
    stack: Stack<Talker>,
    class: ClassId,
    now: Nanos,
    seen: Seen,
    ends: Ends,
    sent: u32,
}

type Seen = Rc<RefCell<Vec<(Nanos, Observation)>>>;

/// Performs the application's verbs and records its events.
struct Talker {
    seen: Seen,
    class: ClassId,
    listening: bool,
    flow: Option<FlowId>,
}

impl Application for Talker {
    type State = ();

    fn event(&mut self, socket: &mut Socket<'_, ()>, event: Event<'_>) {
        let sight = match event {
            Event::Established => {
                self.flow = Some(socket.id());
                Observation::Established
            }
            Event::Received(octets) => Observation::Received(octets.to_vec()),
            Event::PeerClosed => Observation::PeerClosed,
            Event::Gone(reason) => {
                self.flow = None;
                Observation::Gone(gone(reason))
            }
            Event::Acknowledged { .. } | Event::Timer | Event::Settle => return,
        };
        self.seen.borrow_mut().push((socket.now(), sight));
    }

    /// The `message` of a piece is its offset in the stream.
    fn copy(&self, (): &(), _flow: &Tuple, piece: Piece, offset: u32, out: &mut [u8]) {
        out.copy_from_slice(&packet::octets(0, piece.message + offset, out.len() as u32));
    }

    fn accept(&mut self, _now: Nanos, _flow: &Tuple) -> Option<(ClassId, ())> {
        self.listening.then_some((self.class, ()))
    }

    fn listens(&self, _flow: &Tuple) -> bool {
        self.listening
    }
}

fn gone(reason: Reason) -> Gone {
    match reason {
        Reason::Closed => Gone::Closed,
        Reason::Aborted => Gone::Aborted,
        Reason::Reset => Gone::Reset,
        Reason::Refused => Gone::Refused,
        Reason::Unreachable => Gone::Unreachable,
        Reason::ConnectTimeout => Gone::ConnectTimeout,
        Reason::Timeout => Gone::Timeout,
        Reason::KeepaliveTimeout => Gone::KeepaliveTimeout,
        Reason::Idle => unreachable!("a reason of UDP"),
    }
}

/// Accepts every packet.
#[derive(Default)]
struct Wire(Vec<Vec<u8>>);

impl Output for Wire {
    fn packet(
        &mut self,
        _class: ClassId,
        _flow: &Tuple,
        len: usize,
        cut: Cut,
    ) -> Option<&mut [u8]> {
        assert!(cut.is_whole(), "nobody has said that GSO packets are taken");
        self.0.push(vec![0; len]);
        self.0.last_mut().map(Vec::as_mut_slice)
    }
}

impl Squall {
    /// Creates a stack configured for `script`.
    pub fn new(script: &Script, family: Family) -> Result<Self, String> {
        let tunables = tunables(script, family)?;
        let seen = Seen::default();
        let talker = Talker { seen: seen.clone(), class: ClassId(0), listening: false, flow: None };
        let mut stack = Stack::new(Settings { flows: 16, ..Settings::default() }, talker);
        let class = stack.add_class(tunables).map_err(|error| error.to_string())?;
        stack.app_mut().class = class;
        // Time does not start at 0, which would hide fields that were never set.
        Ok(Self {
            stack,
            class,
            now: Nanos(1_000 * Nanos::SECOND.0),
            seen,
            ends: Ends::of(family),
            sent: 0,
        })
    }

    /// Sends the stack's pending packets.
    fn transmit(&mut self) {
        let mut wire = Wire::default();
        self.stack.transmit(self.now, &mut wire);
        let packets = wire.0.into_iter().map(|packet| (self.now, Observation::Packet(packet)));
        self.seen.borrow_mut().extend(packets);
    }

    fn tuple(&self) -> Tuple {
        Tuple {
            kind: FlowKind::Tcp,
            local: self.ends.local.ip(),
            local_port: self.ends.local.port(),
            remote: self.ends.peer.ip(),
            remote_port: self.ends.peer.port(),
        }
    }

    fn socket(&mut self, f: impl FnOnce(&mut Socket<'_, ()>)) -> Result<(), String> {
        let flow = self.stack.app().flow.ok_or("there is no flow")?;
        self.stack
            .with(self.now, flow, |_, socket| f(socket))
            .ok_or("the stack has no such flow".into())
    }
}

impl Subject for Squall {
    fn now(&mut self) -> Nanos {
        self.now
    }

    fn wait(&mut self, until: Nanos) -> Vec<(Nanos, Observation)> {
        loop {
            let seen = self.seen.take();
            if !seen.is_empty() || self.now >= until {
                return seen;
            }
            self.now = self.stack.next_due().map_or(until, |due| due.max(self.now)).min(until);
            self.stack.advance(self.now);
            self.transmit();
            // A wheel may name an earlier time than the one at which it acts; the clock must
            // advance anyway.
            if self.seen.borrow().is_empty()
                && self.stack.next_due().is_some_and(|due| due <= self.now)
            {
                self.now = (self.now + Nanos(10_000)).min(until);
            }
        }
    }

    fn inject(&mut self, packet: &[u8]) {
        self.stack.receive(self.now, packet);
        self.transmit();
    }

    fn act(&mut self, verb: &Verb) -> Result<(), String> {
        match verb {
            Verb::Listen => self.stack.app_mut().listening = true,
            Verb::Connect => {
                let flow = self
                    .stack
                    .connect(self.now, self.class, self.tuple(), ())
                    .map_err(|e| e.to_string())?;
                self.stack.app_mut().flow = Some(flow);
            }
            Verb::Send(len) => {
                let piece = Piece { message: self.sent, nth: 0, len: *len };
                self.sent += len;
                let mut outcome = Ok(());
                self.socket(|socket| outcome = socket.send(piece))?;
                outcome.map_err(|error| error.to_string())?;
            }
            Verb::Close => self.socket(|socket| socket.close())?,
            Verb::Abort => self.socket(|socket| socket.abort())?,
            Verb::Pause => self.socket(|socket| socket.pause())?,
            Verb::Resume => self.socket(|socket| socket.resume())?,
            Verb::NextFlow => self.sent = 0,
        }
        self.transmit();
        Ok(())
    }
}

fn tunables(script: &Script, family: Family) -> Result<Tunables, String> {
    // Without timestamps, which would make segments longer to write. Other options keep their
    // defaults.
    let mut tunables = Tunables { timestamps: false, ..Tunables::default() };
    for setting in &script.tunables {
        set(&mut tunables, setting).map_err(|expected| {
            let Setting { name, value, at } = setting;
            format!(
                "{}:{}:{}: found {name}={value}, expected {expected}",
                script.file, at.line, at.column
            )
        })?;
    }
    if family == Family::V6 {
        // The MSS setting is 20 octets lower over IPv6; scripts give the MSS on the wire.
        tunables.mss += 20;
    }
    Ok(tunables)
}

fn set(tunables: &mut Tunables, setting: &Setting) -> Result<(), &'static str> {
    let value = setting.value.as_str();
    let number = || value.parse::<u32>().map_err(|_| "a number");
    let short = || value.parse::<u16>().map_err(|_| "a number up to 65535");
    let octet = || value.parse::<u8>().map_err(|_| "a number up to 255");
    let time = || value.parse::<Nanos>().map_err(|_| "a duration (200ms)");
    let flag = || match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off"),
    };
    match setting.name.as_str() {
        "mss" => tunables.mss = short()?,
        "initwnd" => tunables.initwnd = short()?,
        "window" => {
            tunables.window = number()?;
            tunables.reassembly = tunables.reassembly.min(tunables.window);
        }
        "wscale" => tunables.wscale = if value == "off" { None } else { Some(octet()?) },
        "reassembly" => tunables.reassembly = number()?,
        "sack" => tunables.sack = flag()?,
        "timestamps" => tunables.timestamps = flag()?,
        "no_delay" => tunables.no_delay = flag()?,
        "delayed_ack" => tunables.delayed_ack = time()?,
        "rto_initial" => tunables.rto_initial = time()?,
        "rto_min" => tunables.rto_min = time()?,
        "rto_max" => tunables.rto_max = time()?,
        "syn_retries" => tunables.syn_retries = octet()?,
        "retries" => tunables.retries = octet()?,
        "keepidle" => tunables.keepidle = time()?,
        "keepintvl" => tunables.keepintvl = time()?,
        "keepcnt" => tunables.keepcnt = octet()?,
        "time_wait" => tunables.time_wait = time()?,
        "fin_wait" => tunables.fin_wait = time()?,
        "ecn" => tunables.ecn = flag()?,
        "congestion" => {
            tunables.congestion = match value {
                "newreno" => Congestion::NewReno,
                "cubic" => Congestion::Cubic,
                _ => return Err("newreno or cubic"),
            }
        }
        _ => {
            return Err("mss, initwnd, window, wscale, reassembly, sack, timestamps, no_delay, \
                        delayed_ack, rto_initial, rto_min, rto_max, syn_retries, retries, \
                        keepidle, keepintvl, keepcnt, time_wait, fin_wait, ecn or congestion");
        }
    }
    Ok(())
}
