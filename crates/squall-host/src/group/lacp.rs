//! LACP of a group: its first host is one port of an aggregate.

use std::collections::BTreeMap;

use squall_stats::Histogram;
use squall_units::{MacAddr, Nanos};

use super::HostGroup;
use crate::{
    FrameQueue,
    host::begin_frame,
    lacp::{
        LacpEvent, LacpInfo, LacpMux, LacpPort, LacpReceive, LacpSettings, LacpStep, SLOW_GROUP,
        SLOW_PROTOCOLS,
    },
};

/// Figures of LACP.
#[derive(Clone, Debug, Default)]
pub struct LacpStatistics {
    pub receive: LacpReceive,
    pub mux: LacpMux,
    pub selected: bool,
    pub actor: LacpInfo,
    pub partner: LacpInfo,
    /// Times that frames could be sent over the link, and that they no longer could; times that the
    /// partner's announcements expired, that none was there, and that it was another one.
    pub up: u64,
    pub down: u64,
    pub expired: u64,
    pub defaulted: u64,
    /// Times that this end, and that the partner did not agree in time.
    pub actor_churn: u64,
    pub partner_churn: u64,
    /// PDUs by kind, and ignored ones by reason.
    pub sent: BTreeMap<&'static str, u64>,
    pub received: u64,
    pub ignored: BTreeMap<&'static str, u64>,
    /// From the start, or the end of a link, to the next one.
    pub time: Histogram,
}

/// The port with its figures.
#[derive(Debug, Default)]
pub(super) struct LacpHost {
    port: LacpPort,
    counted: LacpStatistics,
}

impl LacpHost {
    pub(super) fn due(&self) -> Option<Nanos> {
        self.port.due()
    }

    pub(super) fn stop(&mut self) {
        self.port.stop();
    }

    pub(super) fn statistics(&self, full: bool) -> LacpStatistics {
        let (actor, partner) = self.port.ends();
        let time = if full { self.counted.time.clone() } else { Histogram::default() };
        LacpStatistics {
            receive: self.port.receive_state(),
            mux: self.port.mux_state(),
            selected: self.port.is_selected(),
            actor: *actor,
            partner: *partner,
            time,
            ..self.counted.clone()
        }
    }
}

impl HostGroup {
    /// Enables the port, which belongs to the first host.
    pub(super) fn start_lacp(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        if host == 0 {
            self.step_lacp(now, out, LacpPort::start);
        }
    }

    /// Runs the timers that are due.
    pub(super) fn advance_lacp(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let is_due = self.lacp.as_ref().is_some_and(|of| of.due().is_some_and(|due| due <= now));
        if is_due {
            self.step_lacp(now, out, LacpPort::timer);
        }
        is_due
    }

    /// Handles a frame of a slow protocol, which has no VLAN tags. `None`: it is another one.
    pub(super) fn receive_lacp(
        &mut self,
        now: Nanos,
        (to, from): (MacAddr, MacAddr),
        (kind, payload): (u16, &[u8]),
        out: &mut FrameQueue,
    ) -> Option<bool> {
        let lacp = self.lacp.as_mut().filter(|_| kind == SLOW_PROTOCOLS)?;
        if self.settings.mac == from {
            return Some(false);
        }
        if to != SLOW_GROUP && to != self.settings.mac {
            return None;
        }
        lacp.counted.received += 1;
        self.step_lacp(now, out, |port, now, settings| port.receive(now, payload, settings));
        Some(true)
    }

    fn step_lacp(
        &mut self,
        now: Nanos,
        out: &mut FrameQueue,
        act: impl FnOnce(&mut LacpPort, Nanos, &LacpSettings) -> LacpStep,
    ) {
        let (Some(settings), Some(lacp)) = (&self.settings.lacp, &mut self.lacp) else { return };
        let step = act(&mut lacp.port, now, settings);
        let counted = &mut lacp.counted;
        for event in step.events {
            match event {
                LacpEvent::Up(after) => {
                    counted.up += 1;
                    counted.time.record(after.0);
                }
                LacpEvent::Down => counted.down += 1,
                LacpEvent::Expired => counted.expired += 1,
                LacpEvent::Defaulted => counted.defaulted += 1,
                LacpEvent::ActorChurn => counted.actor_churn += 1,
                LacpEvent::PartnerChurn => counted.partner_churn += 1,
            }
        }
        if let Some(reason) = step.ignored {
            *counted.ignored.entry(reason).or_default() += 1;
        }
        let mac = self.settings.mac;
        for (word, octets) in step.send {
            *counted.sent.entry(word).or_default() += 1;
            out.push(self.due, |frame| {
                // Without VLAN tags, because slow protocols are between the two ends of a link.
                begin_frame(frame, (SLOW_GROUP, mac), &[], SLOW_PROTOCOLS);
                frame.extend_from_slice(&octets);
            });
        }
    }
}
