//! Names of hosts in a profile's pools of servers, looked up by the system's resolver: once a
//! session, before anything is planned, so that what plans and plays knows addresses alone.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs},
    sync::{Arc, Mutex, PoisonError},
};

use squall_profile::{Diagnostic, Diagnostics, Flows, Profile, Said};

use crate::Error;

/// What was looked up so far, and how many addresses each name has. Clones share it: a run that
/// changes goes on with the addresses that it began with.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<Known>>);

/// By a name and whether IPv4 is asked for.
type Known = BTreeMap<(String, bool), (IpAddr, usize)>;

impl Names {
    /// `profile` with addresses in the place of names, and a note for each. Without `look_up` a
    /// name that is not known yet has an address of documentation: enough to find mistakes.
    ///
    /// # Errors
    /// A name that the resolver does not know, or of another family than the clients.
    pub fn resolved<'p>(
        &self,
        profile: &'p Profile,
        look_up: bool,
    ) -> Result<(Cow<'p, Profile>, Vec<String>), Error> {
        let (mut resolved, mut notes) = (Cow::Borrowed(profile), Vec::new());
        let Some(flows) = &profile.flows else { return Ok((resolved, notes)) };
        for (number, pool) in flows.pools.iter().enumerate() {
            let Some(ipv4) = family(flows, number) else { continue };
            for (i, said) in
                pool.addresses.iter().enumerate().filter(|(_, said)| is_name(&said.text))
            {
                let address = match self.known(&said.text, ipv4, look_up) {
                    Ok((address, of)) => {
                        notes.push(match of {
                            0 => format!("{} is resolved when the run is opened", said.text),
                            1 => format!("{} is {address}", said.text),
                            _ => format!("{} is {address}, the first of {of} addresses", said.text),
                        });
                        address
                    }
                    Err(why) => return Err(unknown(profile, said, &why)),
                };
                if let Some(flows) = &mut resolved.to_mut().flows {
                    flows.pools[number].addresses[i].text = address.to_string();
                }
            }
        }
        Ok((resolved, notes))
    }

    /// The address of a name, and how many of the family it has; 0: nobody has looked.
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

/// Whether the servers of pool `number` are to be of IPv4, by the clients of the first template
/// that they serve; `None`: they serve none.
fn family(flows: &Flows, number: usize) -> Option<bool> {
    let template = flows.templates.iter().find(|template| template.servers == number)?;
    let clients = flows.pools.get(template.clients)?.addresses.first()?;
    Some(!clients.text.contains(':'))
}

/// Letters, digits, `-`, `_` and dots, and a last label that does not begin with a digit (RFC 1123
/// §2.1): nothing that could be meant as an address.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..64).contains(&label.len())
            && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"-_".contains(&octet))
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    let last = text.rsplit('.').next().unwrap_or(text);
    // Two numbers in front are those of an address with a mistake in it.
    let numbers = text.split('.').take(2).filter(|label| label.bytes().all(|o| o.is_ascii_digit()));
    text.len() < 254
        && numbers.count() < 2
        && text.split('.').all(label)
        && last.starts_with(|first: char| first.is_ascii_alphabetic())
}

fn unknown(profile: &Profile, said: &Said, why: &str) -> Error {
    let text = format!("cannot resolve {:?}: {why}", said.text);
    let hint = format!(
        "try `getent ahosts {}`, a line in /etc/hosts, or an address (for a URL: the address in \
         servers, the name in the Host header field)",
        said.text
    );
    if said.at.line == 0 {
        return Error::Usage(format!("{text}\n  {hint}"));
    }
    let mut diagnostic = Diagnostic::at(said.at, text, vec![hint]);
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
    fn what_could_be_an_address_is_no_name() {
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
    fn a_name_that_nobody_knows_is_told_with_its_place() {
        // RFC 6761 §6.4: nobody ever has it.
        let error = servers(&Names::default(), &profile("10.0.0.1", "no.such.invalid"), true);
        let error = error.expect_err("it has no address");
        assert!(error.starts_with("test.toml:7:11"), "{error}");
        assert!(error.contains("cannot resolve \"no.such.invalid\": "), "{error}");
    }
}
