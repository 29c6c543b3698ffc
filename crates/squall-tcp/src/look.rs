//! State of open flows, for displays that list individual flows.

use squall_units::Nanos;

use crate::{
    Application, FlowId, Stack, Tuple,
    core::{Core, rto},
    flow::{Bits, Flow, State},
    rest::Place,
    seq::distance,
};

/// The state of an open TCP flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowInfo {
    pub id: FlowId,
    pub tuple: Tuple,
    /// Opened by the peer.
    pub passive: bool,
    pub state: State,
    pub timestamps: bool,
    pub sack: bool,
    /// Shift of the peer's windows and of the local ones; `None`: no window scaling.
    pub wscale: Option<(u8, u8)>,
    /// The longest payload, including options, of a segment to the peer.
    pub mss: u16,
    /// The congestion window, octets.
    pub cwnd: u32,
    /// Slow start threshold, octets; `None`: no loss yet.
    pub ssthresh: Option<u32>,
    /// The phase of BBR, and its pace in octets per second; `None`: another congestion control.
    pub bbr: Option<(&'static str, u64)>,
    /// The peer's window, octets.
    pub send_window: u32,
    /// Octets of the advertised window that the peer has not filled.
    pub receive_window: u32,
    /// Octets (and SYN, FIN) sent and not acknowledged.
    pub flight: u32,
    /// Smoothed round-trip time; 0: no sample yet.
    pub srtt: Nanos,
    pub rttvar: Nanos,
    /// The current retransmission time-out, with its backoff.
    pub rto: Nanos,
}

impl<A: Application> Stack<A> {
    /// Open TCP flows among the `most` ones from number `from` on. Flows in TIME-WAIT are left
    /// out.
    pub fn look(&self, from: u32, most: u32) -> impl Iterator<Item = FlowInfo> + '_ {
        let (from, to) = (from.min(self.records()), from.saturating_add(most).min(self.records()));
        (from..to).filter_map(|number| self.core.look(number))
    }

    /// The most flows at a time so far: the numbers of open flows are below this.
    pub fn records(&self) -> u32 {
        self.core.numbers.count() as u32
    }
}

impl<S: Copy + Default> Core<S> {
    fn look(&self, number: u32) -> Option<FlowInfo> {
        match self.numbers.place(number) {
            Place::Record(flow) => self.info(&self.flows[flow]),
            Place::Rest(row) => self.info(&Flow { number, ..self.rest.get(row, |_| S::default()) }),
            Place::Free => None,
        }
    }

    fn info(&self, f: &Flow<S>) -> Option<FlowInfo> {
        let state = f.tcp_state();
        if matches!(state, State::Closed | State::TimeWait | State::Udp) {
            return None;
        }
        let class = &self.classes[usize::from(f.class)];
        let extra = f.has_extra().then(|| &self.extras[f.extra_place()]);
        let micros = |us: u32| Nanos(u64::from(us) * 1000);
        Some(FlowInfo {
            id: FlowId(f.number),
            tuple: f.key(&self.addresses6).tuple(),
            passive: f.bits.has(Bits::PASSIVE),
            state,
            timestamps: f.bits.has(Bits::TIMESTAMPS),
            sack: f.bits.has(Bits::SACK),
            wscale: wscale(f, class.scale),
            mss: f.mss,
            cwnd: f.cwnd,
            ssthresh: extra.and_then(|extra| extra.ssthresh),
            bbr: extra
                .and_then(|extra| extra.bbr.as_ref())
                .map(|bbr| (bbr.phase().name(), bbr.pacing_rate() as u64)),
            send_window: f.snd_wnd,
            receive_window: distance(f.rcv_nxt, f.rcv_adv),
            flight: f.flight(),
            srtt: micros(f.srtt.micros()),
            rttvar: micros(f.rttvar.micros()),
            // A tick is 2^16 ns.
            rto: Nanos(u64::from(rto(f, class)) << 16),
        })
    }
}

/// Window scaling is in effect only once the peer's SYN has offered it too.
fn wscale<S>(f: &Flow<S>, own: u8) -> Option<(u8, u8)> {
    let agreed = !matches!(f.tcp_state(), State::SynSent);
    Some((f.bits.wscale().filter(|_| agreed)? as u8, own))
}
