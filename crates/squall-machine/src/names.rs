//! Resolves host names in a profile's server pools. The system's resolver is asked once per
//! session, before planning, so plans and engine see only addresses.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs},
    sync::{Arc, Mutex, PoisonError},
};

use squall_profile::{Diagnostic, Diagnostics, Flows, Located, Profile};

use crate::Error;

/// Names resolved so far, each with an address and the number of its addresses. Clones share them,
/// so a run that changes keeps the addresses with which it started.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<Known>>);

/// The key is the name, and whether IPv4 addresses were requested.
type Known = BTreeMap<(String, bool), (IpAddr, usize)>;

impl Names {
    /// Replaces names in `profile` by addresses, with a note for each. Without `look_up`, an
    /// unknown name gets a documentation address, which is enough to find errors.
    ///
    /// # Errors
    /// If the resolver does not know a name, or knows only addresses of another family than that of
    /// the clients.
    pub fn resolved<'p>(
        &self,
        profile: &'p Profile,
        look_up: bool,
    ) -> Result<(Cow<'p, Profile>, Vec<String>), Error> {
        let (mut resolved, mut notes) = (Cow::Borrowed(profile), Vec::new());
        let Some(flows) = &profile.flows else { return Ok((resolved, notes)) };
        for (number, pool) in flows.pools.iter().enumerate() {
            let Some(ipv4) = family(flows, number) else { continue };
            for (i, spec) in
                pool.addresses.iter().enumerate().filter(|(_, spec)| is_name(&spec.text))
            {
                let address = match self.known(&spec.text, ipv4, look_up) {
                    Ok((address, of)) => {
                        notes.push(match of {
                            0 => format!("{} is resolved when the run is opened", spec.text),
                            1 => format!("{} is {address}", spec.text),
                            _ => format!("{} is {address}, the first of {of} addresses", spec.text),
                        });
                        address
                    }
                    Err(why) => return Err(unknown(profile, spec, &why)),
                };
                if let Some(flows) = &mut resolved.to_mut().flows {
                    flows.pools[number].addresses[i].text = address.to_string();
                }
            }
        }
        Ok((resolved, notes))
    }

    /// The address for a name, and the number of its addresses in the family (0: not looked up).
    fn known(&self, name: &str, ipv4: bool, look_up: bool) -> Result<(IpAddr, usize), String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_ascii_lowercase(), ipv4);
        if let Some(found) = known.get(&key) {
            return Ok(*found);
        }
        if !look_up {
            let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
            let v6 = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
            return Ok((if ipv4 { v4 } else { v6 }, 0));
        }
        let all = (name, 0).to_socket_addrs().map_err(|error| error.to_string())?;
        let mut all: Vec<IpAddr> = all.map(|address| address.ip()).collect();
        let others = all.len();
        all.retain(|address| address.is_ipv4() == ipv4);
        let family = if ipv4 { "IPv4" } else { "IPv6" };
        let first = all.first().ok_or_else(|| match others {
            0 => "it has no address".to_owned(),
            _ => format!("it has no {family} address, but the clients are {family}"),
        })?;
        Ok(*known.entry(key).or_insert((*first, all.len())))
    }
}

/// Whether the servers in pool `number` need IPv4 addresses. The clients of the first template that
/// uses the pool decide this; `None` if no template does.
fn family(flows: &Flows, number: usize) -> Option<bool> {
    let template = flows.templates.iter().find(|template| template.servers == number)?;
    let pool = flows.pools.get(template.clients)?;
    let clients = pool.addresses.first()?;
    // Hosts have IPv4 addresses.
    Some(pool.hosts().is_some() || !clients.text.contains(':'))
}

/// Whether the text consists of letters, digits, `-`, `_` and dots, and its last label does not
/// start with a digit (RFC 1123 §2.1). This excludes anything that may be meant as an address.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..64).contains(&label.len())
            && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"-_".contains(&octet))
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    let last = text.rsplit('.').next().unwrap_or(text);
    // A text that starts with two numbers is an address with a typing error.
    let numbers = text.split('.').take(2).filter(|label| label.bytes().all(|o| o.is_ascii_digit()));
    text.len() < 254
        && numbers.count() < 2
        && text.split('.').all(label)
        && last.starts_with(|first: char| first.is_ascii_alphabetic())
}

fn unknown(profile: &Profile, spec: &Located, why: &str) -> Error {
    let text = format!("cannot resolve {:?}: {why}", spec.text);
    let hint = format!(
        "try `getent ahosts {}`, a line in /etc/hosts, or an address (for a URL: the address in \
         servers, the name in the Host header field)",
        spec.text
    );
    if spec.at.line == 0 {
        return Error::Usage(format!("{text}\n  {hint}"));
    }
    let mut diagnostic = Diagnostic::at(spec.at, text, vec![hint]);
    diagnostic.origin.clone_from(&profile.origin);
    Error::Input(Diagnostics(vec![diagnostic]))
}

#[cfg(test)]
mod tests {
    use squall_profile::Format;

    use super::*;

    fn profile(clients: &str, servers: &str) -> Profile {
        let text = format!(
            "[ports]\nA = \"null:\"\n[[template]]\nname = \"t\"\napp = \"http\"\nclients = \
             {clients:?}\nservers = {servers:?}\ncps = 1\n"
        );
        Profile::parse(&text, "test.toml", Format::Toml).expect("a right profile")
    }

    fn servers(names: &Names, profile: &Profile, look_up: bool) -> Result<String, String> {
        let (resolved, _) = names.resolved(profile, look_up).map_err(|error| error.to_string())?;
        let flows = resolved.flows.as_ref().expect("flows");
        Ok(flows.pools[flows.templates[0].servers].addresses[0].text.clone())
    }

    #[test]
    fn text_that_could_be_an_address_is_no_name() {
        for (text, name) in [
            ("www.example.net", true),
            ("localhost", true),
            ("a-b.c_d.e.", true),
            ("10.0.0.1", false),
            ("10.0.0.1-10.0.0.9", false),
            ("10.0.0.0/24", false),
            ("10.0.0.1O", false),
            ("fd00::1", false),
            ("48.0.0.x", false),
            ("163.example", true),
            ("a..b", false),
            ("a b", false),
            ("", false),
        ] {
            assert_eq!(is_name(text), name, "{text}");
        }
    }

    #[test]
    fn a_name_is_looked_up_once_for_the_family_of_the_clients() {
        let (names, profile) =
            (Names::default(), profile("10.0.0.1", "www.invalid.test.localhost"));
        names.0.lock().expect("nobody panicked").insert(
            ("www.invalid.test.localhost".into(), true),
            ("10.0.0.7".parse().expect("an address"), 2),
        );
        assert_eq!(servers(&names, &profile, true).as_deref(), Ok("10.0.0.7"));
        let (_, notes) = names.resolved(&profile, true).expect("known");
        assert_eq!(notes, ["www.invalid.test.localhost is 10.0.0.7, the first of 2 addresses"]);
        assert_eq!(servers(&Names::default(), &profile, false).as_deref(), Ok("192.0.2.1"));
        let six = self::profile("fd00::1", "www.invalid.test.localhost");
        assert_eq!(servers(&names, &six, false).as_deref(), Ok("2001:db8::1"));
    }

    #[test]
    fn an_unknown_name_is_reported_with_its_position() {
        // No host can ever have this name (RFC 6761 §6.4).
        let error = servers(&Names::default(), &profile("10.0.0.1", "no.such.invalid"), true);
        let error = error.expect_err("it has no address");
        assert!(error.starts_with("test.toml:7:11"), "{error}");
        assert!(error.contains("cannot resolve \"no.such.invalid\": "), "{error}");
    }
}
