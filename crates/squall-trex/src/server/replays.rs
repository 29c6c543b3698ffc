//! Sends captures from the directory of the user that starts runs (`push_remote`).

use serde_json::{Value, json};
use squall_profile::{Located, Replay, SpeedUnit};
use squall_units::Nanos;

use super::{Answer, Server};
use crate::{
    rpc::{Params, Refusal},
    traffic,
};

/// Bits of `count` that request to keep the source or destination address of the capture.
const OWN_SOURCE: u64 = 1 << 31;
const OWN_DESTINATION: u64 = 1 << 30;

impl Server {
    /// # Errors A value is out of range, the file cannot be sent, or a port sends already.
    pub(super) fn push_remote(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let file = params.text("pcap_filename")?;
        if params.flag("is_dual") {
            return Err(Refusal::failed(
                "captures are not sent on two ports (is_dual): use squall replay -I",
            ));
        }
        if params.get("min_ipg_usec").and_then(Value::as_f64).is_some_and(|gap| gap > 0.0) {
            return Err(Refusal::failed("min_ipg_usec is not supported: use ipg_usec or speedup"));
        }
        let (gap, speedup) = (params.number("ipg_usec")?, params.number("speedup")?);
        if !(speedup.is_finite() && speedup > 0.0) {
            return Err(Refusal::parameters(format!("speedup = {speedup}: expected more than 0")));
        }
        if !gap.is_finite() || gap == 0.0 {
            let text = format!("ipg_usec = {gap}: expected more than 0, or -1 for as captured");
            return Err(Refusal::parameters(text));
        }
        let busy = (0..self.ports.len()).any(|port| self.sends(port));
        if busy || self.flows_play() {
            return Err(Refusal::failed(
                "a capture is sent only while no port sends: stop the traffic first",
            ));
        }
        let path = self.start.file(file)?;
        let count = params.whole("count")?;
        let duration = params.number("duration")?;
        let mut edit = Vec::new();
        let own = &self.ports[port];
        for (bit, option, mac) in [
            (OWN_SOURCE, "enet-smac", own.info.mac),
            (OWN_DESTINATION, "enet-dmac", own.destination),
        ] {
            if count & bit == 0 {
                edit.push((option.to_owned(), Located::from(mac.to_string().as_str())));
            }
        }
        let speed = match gap > 0.0 {
            true => (SpeedUnit::Rate, format!("{} pps", 1e6 / gap * speedup)),
            false => (SpeedUnit::Captured, speedup.to_string()),
        };
        let replay = Replay {
            name: file.to_owned(),
            files: vec![Located::from(path.to_string_lossy().as_ref())],
            port,
            speed: Some((speed.0, Located::from(speed.1.as_str()))),
            loops: count & !(OWN_SOURCE | OWN_DESTINATION),
            duration: (duration > 0.0 && duration < 1e9).then_some(Nanos((duration * 1e9) as u64)),
            edit,
            ..Replay::default()
        };
        let mut profile = traffic::flow_profile(&self.traffic.places(), None, Vec::new());
        profile.replays.push(replay);
        self.traffic.play(self.start.as_mut(), profile)?;
        self.replaying = Some(port);
        self.event(0, json!({ "port_id": port }));
        Ok(json!({}))
    }

    /// Stops the replay of a capture; returns whether it was on this port.
    pub(super) fn stop_replay(&mut self, port: usize) -> bool {
        if self.replaying != Some(port) {
            return false;
        }
        self.replaying = None;
        self.traffic.end();
        self.event(1, json!({ "port_id": port }));
        true
    }

    /// Sends the events for the end of a replay; `why`: the reason if it failed.
    pub(super) fn replayed(&mut self, why: Option<&str>) {
        let Some(port) = self.replaying.take() else { return };
        if let Some(why) = why {
            self.event(7, json!({ "port_id": port, "error": why }));
        }
        self.event(4, json!({ "port_id": port }));
    }
}
