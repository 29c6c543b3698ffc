//! LACP of the ports of aggregates (IEEE 802.1AX-2014), which the threads of their interfaces run.

use std::sync::Mutex;

use squall_control::driving::lock;
use squall_host::{
    LacpInfo, LacpPort, LacpSettings,
    lacp::{COLLECTING, DISTRIBUTING, LacpStep, SLOW_GROUP, SLOW_PROTOCOLS, SYNCHRONIZATION},
};
use squall_units::{MacAddr, Nanos};

use crate::{LagInfo, LagMemberInfo};

/// The first octet of LACPDUs, of the slow protocols.
const LACP: u8 = 1;

/// A port of an aggregate.
pub struct LacpMember {
    pub lag: String,
    pub port: String,
    mac: MacAddr,
    settings: LacpSettings,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    port: LacpPort,
    is_wanted: bool,
    has_no_link: bool,
    /// It is wanted, and has a link.
    is_enabled: bool,
    counters: LacpCounters,
    /// Frames that the thread of the interface has to send.
    frames: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LacpCounters {
    /// LACPDUs.
    pub received: u64,
    pub sent: u64,
    /// Received ones that were ignored.
    pub errors: u64,
}

/// The state of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LacpView {
    /// Whether frames may be sent over it.
    pub is_up: bool,
    pub counters: LacpCounters,
    pub actor: LacpInfo,
    pub partner: LacpInfo,
}

impl LacpMember {
    /// A port that is enabled at `now`.
    pub fn new(lag: &LagInfo, info: &LagMemberInfo, now: Nanos) -> Self {
        let member = Self {
            lag: lag.name.clone(),
            port: info.port.clone(),
            mac: info.mac,
            settings: info.settings,
            state: Mutex::default(),
        };
        member.enable(now, true);
        member
    }

    /// Handles a received frame.
    pub fn receive(&self, now: Nanos, frame: &[u8]) {
        let Some((head, payload)) = frame.split_first_chunk::<14>() else { return };
        let is_own = head[..6] == SLOW_GROUP.0 || head[..6] == self.mac.0;
        if !is_own || head[12..] != SLOW_PROTOCOLS.to_be_bytes() || head[6..12] == self.mac.0 {
            return;
        }
        let mut state = lock(&self.state);
        if !state.is_enabled {
            return;
        }
        let step = state.port.receive(now, payload, &self.settings);
        if payload.first() == Some(&LACP) {
            state.counters.received += 1;
            state.counters.errors += u64::from(step.ignored.is_some());
        }
        self.send(&mut state, step);
    }

    /// Runs the timers; appends frames to `out`.
    pub fn turn(&self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        let mut state = lock(&self.state);
        if state.port.due().is_some_and(|due| due <= now) {
            let step = state.port.timer(now, &self.settings);
            self.send(&mut state, step);
        }
        out.append(&mut state.frames);
    }

    /// Enables or disables the port. A disabled one sends nothing, so that its partner finds out by
    /// its timeout.
    pub fn enable(&self, now: Nanos, is_wanted: bool) {
        let mut state = lock(&self.state);
        state.is_wanted = is_wanted;
        self.apply(now, &mut state);
    }

    /// Without a link, the port is disabled at once (IEEE 802.1AX-2014 section 6.4.12).
    pub fn set_link(&self, now: Nanos, up: bool) {
        let mut state = lock(&self.state);
        state.has_no_link = !up;
        self.apply(now, &mut state);
    }

    fn apply(&self, now: Nanos, state: &mut State) {
        let is_enabled = state.is_wanted && !state.has_no_link;
        if state.is_enabled == is_enabled {
            return;
        }
        state.is_enabled = is_enabled;
        if is_enabled {
            let step = state.port.start(now, &self.settings);
            self.send(state, step);
        } else {
            state.port.stop();
            state.frames.clear();
        }
    }

    /// Keeps the port out of its aggregate, or lets it back in: see [`LacpPort::set_standby`].
    pub fn set_standby(&self, now: Nanos, standby: bool) {
        let mut state = lock(&self.state);
        let step = state.port.set_standby(now, standby, &self.settings);
        self.send(&mut state, step);
    }

    pub fn view(&self) -> LacpView {
        let state = lock(&self.state);
        let (mut actor, partner) = (*state.port.ends().0, *state.port.ends().1);
        if !state.is_enabled {
            actor.state &= !(SYNCHRONIZATION | COLLECTING | DISTRIBUTING);
        }
        LacpView { is_up: state.port.is_up(), counters: state.counters, actor, partner }
    }

    fn send(&self, state: &mut State, step: LacpStep) {
        for (word, pdu) in step.send {
            state.counters.sent += u64::from(word == "lacpdu");
            let mut frame = [SLOW_GROUP.0, self.mac.0].concat();
            frame.extend(SLOW_PROTOCOLS.to_be_bytes());
            frame.extend(pdu);
            state.frames.push(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Config, translate};

    fn millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    fn members(options: serde_json::Value) -> [LacpMember; 2] {
        let lag = |name: &str, port: &str, options: &serde_json::Value| {
            json!({ "name": name, "ports": [{
                "port_name": port, "ethernet": { "name": format!("e-{port}") }, "lacp": options,
            }] })
        };
        let config = json!({
            "ports": [{ "name": "p1", "location": "va" }, { "name": "p2", "location": "vb" }],
            "lags": [lag("a", "p1", &options), lag("b", "p2", &options)],
        });
        let translated = translate(&Config::from_json(&config).unwrap()).unwrap();
        [0, 1].map(|number| {
            let lag = &translated.lags[number];
            LacpMember::new(lag, &lag.members[0], Nanos(0))
        })
    }

    /// Lets time pass from `begin` to `end`, in milliseconds.
    fn run(members: &[LacpMember; 2], begin: u64, end: u64) {
        for now in (begin..end).map(millis) {
            for from in [0, 1] {
                let mut frames = Vec::new();
                members[from].turn(now, &mut frames);
                frames.iter().for_each(|frame| members[1 - from].receive(now, frame));
            }
        }
    }

    #[test]
    fn two_aggregates_with_default_settings_are_partners() {
        let members = members(json!({}));
        run(&members, 0, 10_000);
        let [a, b] = [0, 1].map(|number| members[number].view());
        assert!(a.is_up && b.is_up, "{a:?} {b:?}");
        assert_eq!((a.partner, b.partner), (b.actor, a.actor));
        assert_ne!(a.actor.system, b.actor.system);
        assert_eq!((a.actor.port, a.actor.key, a.counters.errors), (1, 1, 0));
        assert!(a.counters.sent >= 8 && a.counters.received == b.counters.sent, "{a:?} {b:?}");
    }

    #[test]
    fn a_port_goes_out_of_sync_or_silent_and_comes_back() {
        let members = members(json!({}));
        run(&members, 0, 10_000);
        let before = members[1].view().counters.received;
        members[0].set_standby(millis(10_000), true);
        run(&members, 10_000, 13_000);
        let [a, b] = [0, 1].map(|number| members[number].view());
        assert!(!a.is_up && !b.is_up && b.counters.received >= before + 3, "{a:?} {b:?}");
        assert_eq!(a.actor.state & (SYNCHRONIZATION | COLLECTING), 0);
        members[0].set_standby(millis(13_000), false);
        run(&members, 13_000, 20_000);
        assert!(members.iter().all(|member| member.view().is_up));

        members[0].enable(millis(20_000), false);
        let before = members[0].view().counters;
        run(&members, 20_000, 24_000);
        let [a, b] = [0, 1].map(|number| members[number].view());
        assert_eq!(a.counters, before, "silent, and deaf");
        assert!(!a.is_up && !b.is_up && a.actor.state & DISTRIBUTING == 0, "{a:?} {b:?}");
        members[0].enable(millis(24_000), true);
        run(&members, 24_000, 34_000);
        assert!(members.iter().all(|member| member.view().is_up));
    }

    #[test]
    fn a_port_without_a_link_is_down_at_once() {
        let members = members(json!({ "lacpdu_timeout": 90 }));
        run(&members, 0, 40_000);
        assert!(members.iter().all(|member| member.view().is_up));
        members[0].set_link(millis(40_000), false);
        assert!(!members[0].view().is_up);
        members[0].enable(millis(40_000), true);
        assert!(!members[0].view().is_up && !lock(&members[0].state).is_enabled);
        members[0].set_link(millis(41_000), true);
        run(&members, 41_000, 160_000);
        assert!(members.iter().all(|member| member.view().is_up));
    }

    #[test]
    fn intervals_and_timeouts_are_those_of_the_configuration() {
        let slow = json!({
            "lacpdu_periodic_time_interval": 10, "lacpdu_timeout": 90, "actor_port_number": 7,
            "actor_port_priority": 9, "actor_activity": "active",
        });
        let members = members(slow);
        run(&members, 0, 40_000);
        let before = members[0].view();
        assert!(before.is_up, "{before:?}");
        assert_eq!((before.actor.port, before.actor.port_priority), (7, 9));
        run(&members, 40_000, 100_000);
        let after = members[0].view();
        assert_eq!(after.counters.sent - before.counters.sent, 6, "each 10 s");
    }

    #[test]
    fn only_pdus_of_lacp_are_counted() {
        let members = members(json!({}));
        let mut frames = Vec::new();
        members[0].turn(millis(5000), &mut frames);
        let frame = frames.pop().expect("the first is due after a second");
        let counted = |changed: &[u8]| {
            let before = members[1].view().counters;
            members[1].receive(millis(5000), changed);
            let after = members[1].view().counters;
            (after.received - before.received, after.errors - before.errors)
        };
        assert_eq!(counted(&frame), (1, 0));
        assert_eq!(counted(&frame[..60]), (1, 1), "truncated");
        assert_eq!(counted(&frame[..14]), (0, 0));
        let other = [&frame[..14], &[3], &frame[15..]].concat();
        assert_eq!(counted(&other), (0, 0), "another slow protocol");
        let other = [&frame[..12], &[8, 0], &frame[14..]].concat();
        assert_eq!(counted(&other), (0, 0));
        assert_eq!(counted(&frame[..13]), (0, 0));
    }
}
