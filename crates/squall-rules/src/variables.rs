//! Resolves variables (`$NAME`), addresses and ports in rule headers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Addresses, Numbers, Reason};

/// Maximum nesting of lists and variables. Also ends cycles of variables.
const MAX_DEPTH: usize = 64;
/// Maximum number of elements in a list, including those in its variables.
const MAX_ELEMENTS: usize = 200_000;

/// Variables as text. The use of a variable determines whether it holds addresses or ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variables {
    texts: HashMap<String, String>,
}

/// Pairs of name and value: first those in Suricata's suricata.yaml, then others that rules for
/// Snort 2 and Snort 3 use.
const STANDARD: &[(&str, &str)] = &[
    ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
    ("EXTERNAL_NET", "!$HOME_NET"),
    ("HTTP_SERVERS", "$HOME_NET"),
    ("SMTP_SERVERS", "$HOME_NET"),
    ("SQL_SERVERS", "$HOME_NET"),
    ("DNS_SERVERS", "$HOME_NET"),
    ("TELNET_SERVERS", "$HOME_NET"),
    ("AIM_SERVERS", "$EXTERNAL_NET"),
    ("DC_SERVERS", "$HOME_NET"),
    ("DNP3_SERVER", "$HOME_NET"),
    ("DNP3_CLIENT", "$HOME_NET"),
    ("MODBUS_CLIENT", "$HOME_NET"),
    ("MODBUS_SERVER", "$HOME_NET"),
    ("ENIP_CLIENT", "$HOME_NET"),
    ("ENIP_SERVER", "$HOME_NET"),
    ("HTTP_PORTS", "80"),
    ("SHELLCODE_PORTS", "!80"),
    ("ORACLE_PORTS", "1521"),
    ("SSH_PORTS", "22"),
    ("DNP3_PORTS", "20000"),
    ("MODBUS_PORTS", "502"),
    ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
    ("FTP_PORTS", "21"),
    ("GENEVE_PORTS", "6081"),
    ("VXLAN_PORTS", "4789"),
    ("TEREDO_PORTS", "3544"),
    ("SIP_SERVERS", "$HOME_NET"),
    ("FTP_SERVERS", "$HOME_NET"),
    ("SSH_SERVERS", "$HOME_NET"),
    ("POP_SERVERS", "$HOME_NET"),
    ("IMAP_SERVERS", "$HOME_NET"),
    ("SNMP_SERVERS", "$HOME_NET"),
    ("RPC_SERVERS", "$HOME_NET"),
    ("SIP_PORTS", "[5060,5061,5600]"),
    ("MAIL_PORTS", "[110,143]"),
    ("GTP_PORTS", "[2123,2152,3386]"),
    ("DNS_PORTS", "53"),
    ("SMTP_PORTS", "[25,465,587]"),
    ("SMB_PORTS", "[139,445]"),
];

impl Default for Variables {
    fn default() -> Self {
        Self::standard()
    }
}

impl Variables {
    /// An empty set of variables.
    pub fn none() -> Self {
        Variables { texts: HashMap::new() }
    }

    /// The defaults of Suricata's suricata.yaml, and those of Snort's snort.conf and
    /// snort_defaults.lua that suricata.yaml does not have.
    pub fn standard() -> Self {
        let texts =
            STANDARD.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
        Variables { texts }
    }

    /// Sets or replaces a variable. `name` may start with `$`.
    pub fn set(&mut self, name: &str, text: &str) {
        self.texts.insert(name.trim().trim_start_matches('$').to_owned(), text.trim().to_owned());
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.texts.get(name.trim_start_matches('$')).map(String::as_str)
    }

    /// All variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut all: Vec<_> =
            self.texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// Reads a line of snort.conf: `var NAME value`, `ipvar` or `portvar`. Returns false for any
    /// other line.
    pub fn set_from_line(&mut self, line: &str) -> bool {
        let mut words = line.trim().splitn(3, char::is_whitespace);
        match (words.next(), words.next(), words.next()) {
            (Some("var" | "ipvar" | "portvar"), Some(name), Some(value)) if !name.is_empty() => {
                let value = value.split(" #").next().unwrap_or(value);
                self.set(name, value);
                true
            }
            _ => false,
        }
    }

    /// Reads the variables in a snort.conf (`var`, `ipvar`, `portvar`), in `vars:` of a
    /// suricata.yaml, or in the assignments of a snort_defaults.lua (`NAME = 'value'`). Returns
    /// their number.
    pub fn read(&mut self, text: &str) -> usize {
        let mut count = 0;
        // Indentation of the key `vars:`, while in that section.
        let mut within: Option<usize> = None;
        for line in text.lines() {
            if self.set_from_line(line) {
                count += 1;
                continue;
            }
            let content = line.split(" #").next().unwrap_or("").trim_end();
            let trimmed = content.trim_start();
            if trimmed.is_empty() || trimmed.starts_with('#') || trimmed.starts_with("--") {
                continue;
            }
            let depth = content.len() - trimmed.len();
            if trimmed == "vars:" {
                within = Some(depth);
                continue;
            }
            if within.is_some_and(|outer| depth <= outer) {
                within = None;
            }
            let (separator, inside) =
                if within.is_some() { (':', true) } else { ('=', depth == 0) };
            let Some((name, value)) = trimmed.split_once(separator).filter(|_| inside) else {
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let quoted = |quote: char| {
                value
                    .strip_prefix(quote)
                    .and_then(|rest| rest.split(quote).next())
                    .map(str::to_owned)
            };
            let is_name = name.chars().next().is_some_and(|first| first.is_ascii_uppercase())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_name || value.is_empty() {
                continue;
            }
            let plain = if separator == ':' { Some(value.to_owned()) } else { lua_value(value) };
            if let Some(value) = quoted('"').or_else(|| quoted('\'')).or(plain) {
                self.set(name, &value);
                count += 1;
            }
        }
        count
    }

    /// Resolves the addresses in a header.
    pub fn addresses(&self, text: &str) -> Result<Addresses, (Reason, String)> {
        self.resolver().addresses(text)
    }

    /// Resolves the ports in a header.
    pub fn ports(&self, text: &str) -> Result<Numbers, (Reason, String)> {
        self.resolver().ports(text)
    }

    pub(crate) fn resolver(&self) -> Resolver<'_> {
        Resolver { variables: self, addresses: HashMap::new(), ports: HashMap::new() }
    }
}

/// Reads a Lua value that is a port or a name, which refers to another variable.
fn lua_value(value: &str) -> Option<String> {
    let word = value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match value.parse::<u16>() {
        Ok(port) => Some(port.to_string()),
        Err(_) if word && value.chars().next()?.is_ascii_uppercase() => Some(format!("${value}")),
        Err(_) => None,
    }
}

/// Resolves variables, each only once.
pub(crate) struct Resolver<'a> {
    variables: &'a Variables,
    addresses: HashMap<String, Addresses>,
    ports: HashMap<String, Numbers>,
}

type Resolved<T> = Result<T, (Reason, String)>;

impl<'a> Resolver<'a> {
    pub fn addresses(&mut self, text: &str) -> Resolved<Addresses> {
        self.set_of::<Addresses>(text, MAX_DEPTH, &mut 0)
    }

    pub fn ports(&mut self, text: &str) -> Resolved<Numbers> {
        self.set_of::<Numbers>(text, MAX_DEPTH, &mut 0)
    }

    fn set_of<S: Set>(&mut self, text: &str, depth: usize, elements: &mut usize) -> Resolved<S> {
        let text = text.trim();
        *elements += 1;
        if *elements > MAX_ELEMENTS {
            return Err((
                Reason::BadValue,
                format!("the list has more than {MAX_ELEMENTS} elements"),
            ));
        }
        let Some(depth) = depth.checked_sub(1) else {
            return Err((
                Reason::BadValue,
                format!(
                    "{}: lists or variables are nested more than {MAX_DEPTH} deep; does a \
                     variable refer to itself?",
                    shortened(text)
                ),
            ));
        };
        if let Some(rest) = text.strip_prefix('!') {
            return Ok(self.set_of::<S>(rest, depth, elements)?.complement());
        }
        if let Some(name) = text.strip_prefix('$') {
            if let Some(known) = S::cache(self).get(name) {
                return Ok(known.clone());
            }
            let Some(value) = self.variables.get(name) else {
                return Err((
                    Reason::UndefinedVariable,
                    format!("${name} is not defined: set it, or read the file that defines it"),
                ));
            };
            let value: &'a str = value;
            let set = self.set_of::<S>(value, depth, elements)?;
            S::cache(self).insert(name.to_owned(), set.clone());
            return Ok(set);
        }
        if let Some(inside) = text.strip_prefix('[') {
            let Some(inside) = inside.strip_suffix(']') else {
                return Err((
                    Reason::Syntax,
                    format!("{}: a list that begins with `[` must end with `]`", shortened(text)),
                ));
            };
            let (mut with, mut without) = (vec![], vec![]);
            for element in elements_of(inside) {
                match element.trim().strip_prefix('!') {
                    Some(rest) => without.push(self.set_of::<S>(rest, depth, elements)?),
                    None => with.push(self.set_of::<S>(element, depth, elements)?),
                }
            }
            // A list that has only exclusions means everything else.
            let base = if with.is_empty() { S::any() } else { S::union_of(with) };
            return Ok(if without.is_empty() { base } else { base.minus(&S::union_of(without)) });
        }
        if text.eq_ignore_ascii_case("any") {
            return Ok(S::any());
        }
        S::one(text).ok_or_else(|| {
            (Reason::BadValue, format!("{:?} is not a valid {}", shortened(text), S::WHAT))
        })
    }
}

/// Splits a list at its top level. Keeps empty elements, which the caller must reject.
fn elements_of(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut depth = 0i64;
        for (at, c) in text.char_indices() {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                ',' if depth == 0 => {
                    rest = Some(&text[at + 1..]);
                    return Some(&text[..at]);
                }
                _ => {}
            }
        }
        rest = None;
        Some(text)
    })
}

pub(crate) fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain("...".chars()).collect()
}

trait Set: Clone {
    const WHAT: &'static str;
    fn any() -> Self;
    fn one(text: &str) -> Option<Self>;
    fn union_of(sets: Vec<Self>) -> Self;
    fn minus(&self, other: &Self) -> Self;
    fn complement(&self) -> Self;
    fn cache<'m>(resolver: &'m mut Resolver<'_>) -> &'m mut HashMap<String, Self>;
}

fn all_ports() -> Numbers {
    Numbers::range(0..=65535)
}

impl Set for Numbers {
    const WHAT: &'static str =
        "port: expected a number up to 65535, first:last, a list in brackets, any or $NAME";

    fn any() -> Self {
        all_ports()
    }

    fn one(text: &str) -> Option<Self> {
        let port = |text: &str, open: u16| match text.trim() {
            "" => Some(open),
            text => text.parse::<u16>().ok(),
        };
        let (first, last) = match text.split_once(':') {
            Some((first, last)) if !(first.trim().is_empty() && last.trim().is_empty()) => {
                (port(first, 0)?, port(last, u16::MAX)?)
            }
            Some(_) => return None,
            None => {
                let only = text.parse::<u16>().ok()?;
                (only, only)
            }
        };
        (first <= last).then(|| Numbers::range(first.into()..=last.into()))
    }

    fn union_of(sets: Vec<Self>) -> Self {
        sets.iter().flat_map(Numbers::ranges).collect()
    }

    fn minus(&self, other: &Self) -> Self {
        self.without(other)
    }

    fn complement(&self) -> Self {
        all_ports().without(self)
    }

    fn cache<'m>(resolver: &'m mut Resolver<'_>) -> &'m mut HashMap<String, Self> {
        &mut resolver.ports
    }
}

impl Set for Addresses {
    const WHAT: &'static str = "address: expected 192.0.2.1, 192.0.2.0/24, first-last, \
                                2001:db8::/32, a list in brackets, any or $NAME";

    fn any() -> Self {
        Addresses::any()
    }

    fn one(text: &str) -> Option<Self> {
        if let Some((address, prefix)) = text.split_once('/') {
            return match address.trim().parse().ok()? {
                IpAddr::V4(address) => {
                    let length: u32 = match prefix.trim().parse::<u32>() {
                        Ok(length) => length,
                        Err(_) => {
                            let mask = prefix.trim().parse::<Ipv4Addr>().ok()?.to_bits();
                            let length = mask.leading_ones();
                            (mask.count_ones() == length).then_some(length)?
                        }
                    };
                    let host = u32::MAX.checked_shr(length).unwrap_or(0);
                    let first = address.to_bits() & !host;
                    (length <= 32).then(|| {
                        Addresses::range(
                            Ipv4Addr::from(first).into(),
                            Ipv4Addr::from(first | host).into(),
                        )
                    })
                }
                IpAddr::V6(address) => {
                    let length: u32 = prefix.trim().parse().ok()?;
                    let host = u128::MAX.checked_shr(length).unwrap_or(0);
                    let first = address.to_bits() & !host;
                    (length <= 128).then(|| {
                        Addresses::range(
                            Ipv6Addr::from(first).into(),
                            Ipv6Addr::from(first | host).into(),
                        )
                    })
                }
            };
        }
        let (first, last): (IpAddr, IpAddr) = match text.split_once('-') {
            Some((first, last)) => (first.trim().parse().ok()?, last.trim().parse().ok()?),
            None => {
                let only = text.parse().ok()?;
                (only, only)
            }
        };
        let range = Addresses::range(first, last);
        (!range.is_empty()).then_some(range)
    }

    fn union_of(sets: Vec<Self>) -> Self {
        Addresses::union_of(&sets)
    }

    fn minus(&self, other: &Self) -> Self {
        self.without(other)
    }

    fn complement(&self) -> Self {
        Addresses::complement(self)
    }

    fn cache<'m>(resolver: &'m mut Resolver<'_>) -> &'m mut HashMap<String, Self> {
        &mut resolver.addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(text: &str) -> Vec<(u64, u64)> {
        let numbers = Variables::standard().ports(text).unwrap();
        numbers.ranges().map(|range| range.into_inner()).collect()
    }

    #[test]
    fn ports_are_lists_ranges_and_exclusions() {
        assert_eq!(ports("any"), [(0, 65535)]);
        assert_eq!(ports("[80,8080:8090,!8085]"), [(80, 80), (8080, 8084), (8086, 8090)]);
        assert_eq!(ports("!$HTTP_PORTS"), [(0, 79), (81, 65535)]);
        assert_eq!(ports("[!80,!443]"), [(0, 79), (81, 442), (444, 65535)]);
        assert_eq!(ports("[:10,60000:]"), [(0, 10), (60000, 65535)]);
        assert_eq!(ports("![1:65534,![5,6]]"), [(0, 0), (5, 6), (65535, 65535)]);
        for bad in ["", "80000", "9:3", ":", "a", "[80", "[80,]", "$NONE", "-1"] {
            assert!(Variables::standard().ports(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_are_networks_ranges_and_exclusions_of_both_families() {
        let of = |text: &str| Variables::standard().addresses(text).unwrap();
        let holds = |text: &str, address: &str| of(text).contains(address.parse().unwrap());
        assert!(holds("$EXTERNAL_NET", "8.8.8.8") && !holds("$EXTERNAL_NET", "10.0.0.1"));
        assert!(holds("[10.0.0.0/8,!10.1.0.0/255.255.0.0]", "10.2.0.1"));
        assert!(!holds("[10.0.0.0/8,!10.1.0.0/255.255.0.0]", "10.1.0.1"));
        assert!(
            holds("192.0.2.5-192.0.2.7", "192.0.2.7") && !holds("192.0.2.5-192.0.2.7", "192.0.2.8")
        );
        assert!(
            holds("2001:db8::/32", "2001:db8:ffff::1")
                && holds("0.0.0.0/0", "1.2.3.4")
                && holds("::/0", "::1")
        );
        for bad in [
            "",
            "1.2.3",
            "1.2.3.4/33",
            "1.2.3.4/255.0.255.0",
            "::/129",
            "1.2.3.9-1.2.3.4",
            "1.2.3.4-::1",
        ] {
            assert!(Variables::standard().addresses(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_variable_that_names_itself_is_refused_and_one_that_names_another_twice_is_quick() {
        let mut variables = Variables::none();
        variables.set("A", "[$B]");
        variables.set("B", "$A");
        assert_eq!(variables.ports("$A").unwrap_err().0, Reason::BadValue);
        for level in 0..20 {
            variables.set(&format!("L{level}"), &format!("[$L{0},$L{0}]", level + 1));
        }
        variables.set("L20", "7");
        assert_eq!(variables.ports("$L0"), Ok(Numbers::one(7)));
    }

    #[test]
    fn variables_are_read_from_files_of_suricata_and_of_both_snorts() {
        let mut variables = Variables::none();
        let yaml = "%YAML 1.1\n---\nvars:\n  # more specific\n  address-groups:\n    HOME_NET: \
                    \"[10.0.0.0/8]\"\n    EXTERNAL_NET: \"!$HOME_NET\" # others\n    #OTHER: \
                    \"any\"\n  port-groups:\n    HTTP_PORTS: 80\noutputs:\n  FAST: \"x\"\n";
        assert_eq!(variables.read(yaml), 3);
        assert_eq!(variables.get("EXTERNAL_NET"), Some("!$HOME_NET"));
        assert_eq!(variables.get("$HTTP_PORTS"), Some("80"));
        assert_eq!(variables.get("FAST"), None);
        assert_eq!(
            variables
                .read("ipvar HOME_NET any\nportvar HTTP_PORTS [80,81] # two\n#var X 1\nconfig x\n"),
            2
        );
        assert_eq!(variables.get("HTTP_PORTS"), Some("[80,81]"));
        assert_eq!(
            variables
                .read("HOME_NET = [[ 10.0.0.0/8 ]]\nDNS_SERVERS = HOME_NET\nSIP_PORTS = '5060'\n"),
            2
        );
        assert_eq!(variables.get("DNS_SERVERS"), Some("$HOME_NET"));
    }
}
