//! Rules for the frames that a device gives to Squall's queues (rte_flow).

use std::{ffi::CStr, io, net::IpAddr};

use squall_port::{SteerRule, Steered};

use crate::{
    device::Device,
    shim::{self, Rule},
};

/// Sets `rules` until the device is removed. Returns notes for the user.
///
/// # Errors
/// The driver refuses a rule; the message has its reason.
pub fn set(device: &Device, rules: &[SteerRule]) -> io::Result<Vec<String>> {
    let (address, driver) = (&device.address, device.driver());
    let mut notes = Vec::new();
    if device.config.using & shim::ISOLATED == 0 {
        notes.push(format!(
            "{address}: the driver {driver} cannot leave other frames out: they are received, too"
        ));
    }
    for rule in rules {
        let Err((code, why)) = device.steer(&of_frames(rule.frames)) else { continue };
        let text =
            format!("{address}: the driver {driver} refuses a rule for {}: {why}", rule.frames);
        if rule.frames.finds_neighbors() {
            notes.push(format!("{text}; neighbors need static entries for the hosts"));
            continue;
        }
        let kind = io::Error::from_raw_os_error(-code).kind();
        let hint = "\n  try it without steer: the port then receives all frames";
        return Err(io::Error::new(kind, text + hint));
    }
    Ok(notes)
}

impl Device {
    /// Sets a rule. Returns DPDK's code and the driver's message after a refusal.
    fn steer(&self, rule: &Rule) -> Result<(), (i32, String)> {
        let mut why = [0u8; 256];
        // SAFETY: a started port, a rule, and room for a text in the length given.
        let code =
            unsafe { (self.eal.api.steer)(self.port, rule, why.as_mut_ptr().cast(), why.len()) };
        if code == 0 {
            return Ok(());
        }
        let why = CStr::from_bytes_until_nul(&why).unwrap_or_default().to_string_lossy();
        Err((code, why.into_owned()))
    }
}

fn of_frames(frames: Steered) -> Rule {
    let Steered::Ip { to, transport } = frames else { return Rule::default() };
    let mut rule = Rule { bits: to.len, ..Rule::default() };
    match to.address {
        IpAddr::V4(address) => {
            rule.family = 4;
            rule.address[..4].copy_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            rule.family = 6;
            rule.address = address.octets();
        }
    }
    if let Some((transport, port)) = transport {
        (rule.protocol, rule.to_port) = (transport.number(), port);
    }
    rule
}

#[cfg(test)]
mod tests {
    use squall_port::{Hosts, Steer};

    use super::*;

    #[test]
    fn rules_have_the_addresses_and_ports_of_the_frames() {
        let of = |steer: &str, hosts: &Hosts| -> Vec<Rule> {
            let rules = steer.parse::<Steer>().unwrap().rules(hosts, &(0..1)).unwrap();
            rules.iter().map(|rule| of_frames(rule.frames)).collect()
        };
        let ports = of("udp/53", &Hosts::default());
        let rule = Rule { family: 4, protocol: 17, to_port: 53, ..Rule::default() };
        assert_eq!(ports, [rule, Rule { family: 6, ..rule }]);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let addresses = vec![
            address("10.0.0.4")..=address("10.0.0.7"),
            address("fd00::1")..=address("fd00::1"),
        ];
        let rules = of("flows", &Hosts { addresses, ..Hosts::default() });
        let (mut v4, mut v6) = ([0; 16], [0; 16]);
        v4[..4].copy_from_slice(&[10, 0, 0, 4]);
        (v6[0], v6[15]) = (0xfd, 1);
        let wanted = [
            Rule { address: v4, family: 4, bits: 30, ..Rule::default() },
            Rule::default(),
            Rule { address: v6, family: 6, bits: 128, ..Rule::default() },
        ];
        assert_eq!(rules[..3], wanted);
        assert_eq!((rules[3].family, rules[3].bits), (6, 104), "neighbor solicitations");
    }
}
