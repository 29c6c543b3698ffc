//! Fingerprints as text: JA3, JA4 and JA4_ro.

use std::fmt::Write as _;

use sha2::Digest as _;

use super::{
    Body, Browser, Extension, GREASE, Hello, HelloError, is_grease, kind,
    octets::{alpn, counted16},
};

/// Maximum of a text, and of each of its lists.
const MAX_LEN: usize = 8192;
const MAX_LIST: usize = 255;
/// Octets of a key by group: X25519, P-256, P-384, P-521, X25519MLKEM768.
const KEYS: [(u16, u16); 5] = [(29, 32), (23, 65), (24, 97), (25, 133), (4588, 1216)];

impl Hello {
    /// A browser of the list by its name or by a hash of its hello, or the hello of a JA3 string or
    /// of JA4_ro.
    ///
    /// # Errors
    /// Texts of another kind, hashes of other hellos, and those of [`Self::from_ja3`] and
    /// [`Self::from_ja4_ro`].
    pub fn from_text(text: &str) -> Result<Self, HelloError> {
        let is_hex = |text: &str| text.bytes().all(|octet| octet.is_ascii_hexdigit());
        let text = text.trim();
        let lower = text.to_ascii_lowercase();
        if let Some(hello) = Self::named(&lower) {
            return Ok(hello);
        }
        if text.len() == 32 && is_hex(text) {
            let hash = |hello: &Self| hexadecimal(&md5::Md5::digest(hello.ja3()));
            let mut newest_first = Browser::all().rev().map(|one| one.hello());
            let found = newest_first.find(|hello| !hello.shuffle && hash(hello) == lower);
            return found.ok_or(HelloError::Hash("a JA3 value of 32 digits"));
        }
        let parts: Vec<&str> = text.split('_').collect();
        match parts[..] {
            [first, second, third] if [first.len(), second.len(), third.len()] == [10, 12, 12] => {
                let published = |one: &Browser| one.published().any(|(value, _)| value == text);
                let found = Browser::all().rev().find(published);
                found.map(|one| one.hello()).ok_or(HelloError::Hash("a JA4 value"))
            }
            [first, _, ..] if first.len() == 10 => Self::from_ja4_ro(text),
            _ if text.contains(',') => Self::from_ja3(text),
            _ => {
                let names: Vec<&str> = Browser::all().map(|one| one.name).collect();
                Err(HelloError::Unknown(squall_units::suggest(text, names)))
            }
        }
    }

    /// The hello of a JA3 string: `771,4865-4866,0-23-65281,29-23,0` (salesforce/ja3). Its
    /// other parts (signature algorithms, versions, protocols, key shares, GREASE) are those of the
    /// browser of the list with the most suites and extensions in common.
    ///
    /// # Errors
    /// Another text, an extension twice, or a hello without TLS 1.2 and 1.3.
    pub fn from_ja3(text: &str) -> Result<Self, HelloError> {
        let wrong = |why: &str| HelloError::Ja3(why.into());
        if text.len() > MAX_LEN {
            return Err(wrong("it has more than 8,192 characters"));
        }
        let lists: Result<Vec<Vec<u16>>, HelloError> =
            text.split(',').map(|list| numbers_of(list, "-", 10, &HelloError::Ja3)).collect();
        let Ok([version, suites, kinds, groups, formats]) = <[_; 5]>::try_from(lists?) else {
            return Err(wrong("it has another number of lists than five"));
        };
        let [version] = version[..] else { return Err(wrong("its version is not a number")) };
        if version >> 8 != 3 {
            return Err(wrong("its version is not 771 (TLS 1.2 or 1.3), 770 or 769"));
        }
        let formats: Option<Vec<u8>> = formats.iter().map(|one| u8::try_from(*one).ok()).collect();
        let formats = formats.ok_or(wrong("a point format is above 255"))?;
        let text = Text {
            version,
            suites,
            kinds,
            groups: Some(groups),
            formats: Some(formats),
            ..Text::default()
        };
        text.hello(&HelloError::Ja3)
    }

    /// The hello of JA4_ro: `t13d0203h2_1301,1302_0000,0010,000d_0403` (FoxIO, JA4.md). SNI and
    /// ALPN, which some tools leave out, are added in front if the number of extensions has them.
    /// Other parts are filled as for [`Self::from_ja3`].
    ///
    /// # Errors
    /// Another text, JA4_r, an extension twice, or a hello without TLS 1.2 and 1.3.
    pub fn from_ja4_ro(text: &str) -> Result<Self, HelloError> {
        let wrong = |why: &str| HelloError::Ja4(why.into());
        if text.len() > MAX_LEN {
            return Err(wrong("it has more than 8,192 characters"));
        }
        let parts: Vec<&str> = text.split('_').collect();
        let (first, suites, kinds, signatures) = match parts[..] {
            [first, suites, kinds] => (first, suites, kinds, ""),
            [first, suites, kinds, signatures] => (first, suites, kinds, signatures),
            _ => return Err(wrong("it has another number of parts than three or four")),
        };
        let prefix = Prefix::of(first).ok_or(wrong("its first part is not as in t13d1516h2"))?;
        let list = |list: &str| numbers_of(list, ",", 16, &HelloError::Ja4);
        let (suites, mut kinds, signatures) = (list(suites)?, list(kinds)?, list(signatures)?);
        if suites.len() != prefix.suites {
            return Err(wrong("its number of cipher suites is not that of its first part"));
        }
        let has = |kinds: &[u16], kind| kinds.contains(&kind);
        let lacks_name = prefix.has_name && !has(&kinds, kind::SERVER_NAME);
        let lacks_alpn = prefix.protocol != "00" && !has(&kinds, kind::ALPN);
        if (lacks_name || lacks_alpn) && suites.is_sorted() && kinds.is_sorted() && kinds.len() > 2
        {
            return Err(HelloError::Sorted);
        }
        if lacks_alpn {
            kinds.insert(0, kind::ALPN);
        }
        if lacks_name {
            kinds.insert(0, kind::SERVER_NAME);
        }
        if kinds.len() != prefix.extensions {
            return Err(wrong("its number of extensions is not that of its first part"));
        }
        // Extensions of one session are counted in the text, and not sent.
        let left_out = kinds.iter().filter(|kind| kind::OF_ONE_SESSION.contains(kind)).count();
        let expected = format!("{}{:02}{}", &first[..6], prefix.extensions - left_out, &first[8..]);
        let text = Text {
            version: prefix.version.min(0x0303),
            best_version: Some(prefix.version),
            suites,
            kinds,
            signatures: Some(signatures),
            protocol: Some(prefix.protocol.into()),
            ..Text::default()
        };
        let hello = text.hello(&HelloError::Ja4)?;
        // Parts from the browser of the list have to fit the text.
        if hello.ja4().split('_').next() == Some(expected.as_str()) {
            return Ok(hello);
        }
        Err(wrong("its first part does not fit its extensions"))
    }

    /// The JA3 string, as read. Browsers that shuffle extensions have many.
    pub fn ja3(&self) -> String {
        let joined = |list: &mut dyn Iterator<Item = u16>| {
            let kept = list.filter(|value| !is_grease(*value)).map(|value| value.to_string());
            kept.collect::<Vec<_>>().join("-")
        };
        let formats = self.octets(kind::POINT_FORMATS).iter().skip(1);
        format!(
            "{},{},{},{},{}",
            self.version,
            joined(&mut self.suites.iter().copied()),
            joined(&mut self.kinds()),
            joined(&mut self.groups()),
            joined(&mut formats.map(|format| u16::from(*format))),
        )
    }

    /// The JA4 value, as read: `t13d1516h2_8daaf6152771_02713d6af862`.
    pub fn ja4(&self) -> String {
        let suites: Vec<u16> =
            self.suites.iter().copied().filter(|suite| !is_grease(*suite)).collect();
        let kinds: Vec<u16> = self.kinds().collect();
        let versions = match self.body(kind::VERSIONS) {
            Some(Body::Versions(versions)) => &versions[..],
            _ => &[],
        };
        let best = versions.iter().copied().filter(|version| !is_grease(*version)).max();
        let version = match best.unwrap_or(self.version) {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            _ => "00",
        };
        let signatures: Vec<u16> = self.signature_schemes().collect();
        let mut hashed = sorted(kinds.iter().filter(|kind| !matches!(**kind, 0 | 16)));
        if !signatures.is_empty() {
            let _ = write!(hashed, "_{}", hexadecimals(&signatures));
        }
        format!(
            "t{version}{}{:02}{:02}{}_{}_{}",
            if kinds.contains(&kind::SERVER_NAME) { 'd' } else { 'i' },
            suites.len().min(99),
            kinds.len().min(99),
            ends_of(self.alpn().next().unwrap_or_default()),
            short(&sorted(&suites)),
            short(&hashed),
        )
    }

    /// Kinds of extensions without GREASE.
    fn kinds(&self) -> impl Iterator<Item = u16> {
        let counts =
            |one: &&Extension| !is_grease(one.kind) && one.body != Body::Padding { read: false };
        self.extensions.iter().filter(counts).map(|one| one.kind)
    }
}

/// The first part of JA4.
struct Prefix<'a> {
    version: u16,
    has_name: bool,
    suites: usize,
    extensions: usize,
    /// First and last character of the first protocol.
    protocol: &'a str,
}

impl<'a> Prefix<'a> {
    fn of(text: &'a str) -> Option<Self> {
        if !text.is_ascii() || text.len() != 10 || !text.starts_with('t') {
            return None;
        }
        let version = match &text[1..3] {
            "13" => 0x0304,
            "12" => 0x0303,
            "11" => 0x0302,
            "10" => 0x0301,
            _ => return None,
        };
        let has_name = match &text[3..4] {
            "d" => true,
            "i" => false,
            _ => return None,
        };
        let number = |text: &str| text.parse::<u8>().ok().map(usize::from);
        let (suites, extensions) = (number(&text[4..6])?, number(&text[6..8])?);
        Some(Self { version, has_name, suites, extensions, protocol: &text[8..] })
    }
}

/// The parts of a hello in a text.
#[derive(Default)]
struct Text {
    version: u16,
    best_version: Option<u16>,
    suites: Vec<u16>,
    kinds: Vec<u16>,
    groups: Option<Vec<u16>>,
    formats: Option<Vec<u8>>,
    signatures: Option<Vec<u16>>,
    /// First and last character of the first protocol.
    protocol: Option<String>,
}

impl Text {
    fn hello(mut self, wrong: &dyn Fn(String) -> HelloError) -> Result<Hello, HelloError> {
        let mut kinds = self.kinds.clone();
        kinds.retain(|kind| !is_grease(*kind));
        kinds.sort_unstable();
        if let Some(pair) = kinds.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(format!("it has extension {} twice", pair[0])));
        }
        if self.kinds.iter().filter(|kind| is_grease(**kind)).count() > 2 {
            return Err(wrong("it has more than two extensions of GREASE".into()));
        }
        self.kinds.retain(|kind| !kind::OF_ONE_SESSION.contains(kind));
        if self.suites.is_empty() {
            return Err(wrong("it has no cipher suites".into()));
        }
        let nearest = self.nearest();
        let has_grease = |list: &[u16]| list.iter().any(|one| is_grease(*one));
        let greases = has_grease(&nearest.suites) && !has_grease(&self.suites);
        let first = greases.then_some(GREASE);
        let mut extensions = vec![];
        for kind in std::mem::take(&mut self.kinds) {
            let body = self.body(kind, &nearest, greases).ok_or_else(|| {
                wrong(format!("nothing is known that its extension {kind} can contain"))
            })?;
            extensions.push(Extension { kind, body });
        }
        let grease = nearest.extensions.iter().filter(|one| greases && is_grease(one.kind));
        for (n, one) in grease.enumerate().take(2) {
            let at = if n == 0 { 0 } else { extensions.len() - fixed(&extensions) };
            extensions.insert(at, one.clone());
        }
        let has_versions = extensions.iter().any(|one| one.kind == kind::VERSIONS);
        let hello = Hello {
            record_version: nearest.record_version,
            version: self.version,
            session_id: if has_versions { nearest.session_id } else { 0 },
            suites: first.into_iter().chain(self.suites).collect(),
            compressions: [0].into(),
            extensions: extensions.into(),
            shuffle: false,
        };
        hello.with_known_version()
    }

    /// The browser with the most suites, extensions, groups and signature algorithms in common and
    /// the fewest others, the newest of them.
    fn nearest(&self) -> Hello {
        let common = |one: &[u16], other: &mut dyn Iterator<Item = u16>| {
            other.map(|value| if one.contains(&value) { 1 } else { -1 }).sum::<isize>()
        };
        let score = |hello: &Hello| {
            let suites = common(&self.suites, &mut hello.suites.iter().copied());
            let kinds = common(&self.kinds, &mut hello.kinds());
            let groups = self.groups.as_deref();
            let groups = groups.map_or(0, |groups| common(groups, &mut hello.groups()));
            let signatures = self.signatures.as_deref();
            let schemes = |list| common(list, &mut hello.signature_schemes());
            suites + kinds + groups + signatures.map_or(0, schemes)
        };
        let all = Browser::all().map(|one| one.hello());
        all.max_by_key(score).expect("the list has browsers")
    }

    /// The content of an extension: as in the text, in the nearest browser, or in the newest other
    /// one that has it. Unknown ones are empty.
    fn body(&self, kind: u16, nearest: &Hello, greases: bool) -> Option<Body> {
        let known = || {
            let of_others = || Browser::all().rev().find_map(|one| one.hello().body(kind).cloned());
            nearest.body(kind).cloned().or_else(of_others)
        };
        let counted = |list: &[u16]| {
            let mut out = vec![];
            counted16(&mut out, |out| {
                out.extend(list.iter().flat_map(|one| one.to_be_bytes()));
            });
            Body::Octets(out.into())
        };
        Some(match kind {
            _ if is_grease(kind) => Body::Octets(Box::default()),
            kind::SERVER_NAME => Body::ServerName,
            kind::PADDING => Body::Padding { read: true },
            kind::GROUPS => match &self.groups {
                Some(groups) if groups.is_empty() => return None,
                Some(groups) => Body::Groups(greased(groups, greases)),
                None => known()?,
            },
            kind::POINT_FORMATS => match &self.formats {
                Some(formats) => {
                    let n = u8::try_from(formats.len()).ok()?;
                    Body::Octets(std::iter::once(n).chain(formats.iter().copied()).collect())
                }
                None => known()?,
            },
            kind::SIGNATURES => match &self.signatures {
                Some(list) if !list.is_empty() => counted(list),
                _ => known()?,
            },
            kind::SIGNATURES_OF_CERTIFICATES => match known_signatures(self, nearest) {
                Some(octets) => Body::Octets(octets),
                None => Body::Octets(Box::default()),
            },
            kind::ALPN => match &self.protocol {
                Some(ends) => protocols(ends, nearest)?,
                None => known()?,
            },
            kind::VERSIONS => self.versions(known()?)?,
            kind::KEY_SHARE => match &self.groups {
                Some(groups) => shares(known()?, groups, greases),
                None => known()?,
            },
            _ => known().unwrap_or(Body::Octets(Box::default())),
        })
    }

    /// The versions of a browser, up to that of the text.
    fn versions(&self, body: Body) -> Option<Body> {
        let Body::Versions(versions) = body else { return None };
        let best = self.best_version.unwrap_or(u16::MAX);
        let kept: Box<[u16]> =
            versions.iter().copied().filter(|one| is_grease(*one) || *one <= best).collect();
        (!kept.is_empty()).then_some(Body::Versions(kept))
    }
}

/// `signature_algorithms_cert` is a list like `signature_algorithms`, which no browser sends.
fn known_signatures(text: &Text, nearest: &Hello) -> Option<Box<[u8]>> {
    match text.body(kind::SIGNATURES, nearest, false)? {
        Body::Octets(octets) => Some(octets),
        _ => None,
    }
}

/// How many extensions at the end stay there.
fn fixed(extensions: &[Extension]) -> usize {
    extensions.iter().rev().take_while(|one| one.kind == kind::PADDING).count()
}

fn greased(list: &[u16], greases: bool) -> Box<[u16]> {
    greases.then_some(GREASE).into_iter().chain(list.iter().copied()).collect()
}

/// The protocols of the nearest browser, if the first has these ends; otherwise a known one.
fn protocols(ends: &str, nearest: &Hello) -> Option<Body> {
    if nearest.alpn().next().is_some_and(|name| ends_of(name) == ends) {
        return nearest.body(kind::ALPN).cloned();
    }
    let known: &[&str] = match ends {
        "h2" => &["h2", "http/1.1"],
        "h1" => &["http/1.1"],
        "dt" => &["dot"],
        _ => return None,
    };
    alpn(known.iter().map(|name| name.as_bytes())).map(Body::Octets)
}

/// The shares of a browser whose groups the text has; without any, one of its first known group.
fn shares(body: Body, groups: &[u16], greases: bool) -> Body {
    let Body::Shares(shares) = body else { return body };
    let has = |group: u16| groups.contains(&group);
    let mut kept: Vec<(u16, u16)> = shares
        .iter()
        .copied()
        .filter(|(group, _)| if is_grease(*group) { greases } else { has(*group) })
        .collect();
    if kept.iter().all(|(group, _)| is_grease(*group)) {
        let known = |group: &u16| KEYS.iter().find(|(one, _)| one == group).copied();
        kept.extend(groups.iter().find_map(known));
    }
    Body::Shares(kept.into())
}

/// First and last character of a protocol, as in JA4.
fn ends_of(protocol: &[u8]) -> String {
    match (protocol.first(), protocol.last()) {
        (Some(first), Some(last))
            if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() =>
        {
            format!("{}{}", char::from(*first), char::from(*last))
        }
        (Some(first), Some(last)) => format!("{:x}{:x}", first >> 4, last & 15),
        _ => "00".into(),
    }
}

fn numbers_of(
    list: &str,
    separator: &str,
    radix: u32,
    wrong: &dyn Fn(String) -> HelloError,
) -> Result<Vec<u16>, HelloError> {
    if list.is_empty() {
        return Ok(vec![]);
    }
    let number = |text: &str| -> Result<u16, HelloError> {
        let number = u16::from_str_radix(text, radix)
            .map_err(|_| wrong(format!("{text:?} is not a number")))?;
        Ok(if is_grease(number) { GREASE } else { number })
    };
    let numbers: Vec<u16> = list.split(separator).map(number).collect::<Result<_, _>>()?;
    if numbers.len() > MAX_LIST {
        return Err(wrong(format!("a list has more than {MAX_LIST} numbers")));
    }
    Ok(numbers)
}

fn sorted<'a>(list: impl IntoIterator<Item = &'a u16>) -> String {
    let mut list: Vec<u16> = list.into_iter().copied().collect();
    list.sort_unstable();
    hexadecimals(&list)
}

fn hexadecimals(list: &[u16]) -> String {
    list.iter().map(|value| format!("{value:04x}")).collect::<Vec<_>>().join(",")
}

/// The hash of a list in JA4.
fn short(text: &str) -> String {
    match text {
        "" => "000000000000".into(),
        text => hexadecimal(&sha2::Sha256::digest(text)[..6]),
    }
}

fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHROME_JA3: &str = "771,4865-4866-4867-49195-49199-49196-49200-52393-52392-49171-49172-\
                              156-157-47-53,0-23-65281-10-11-35-16-5-13-18-51-45-43-27-17513-21,\
                              29-23-24,0";

    fn kinds(hello: &Hello) -> Vec<u16> {
        hello.extensions.iter().map(|one| one.kind).collect()
    }

    #[test]
    fn a_hello_has_its_ja3_string() {
        // Chrome 99 to 109; the MD5 of the string is in many lists of JA3.
        let hello = Hello::named("chrome-99").unwrap();
        assert_eq!(hello.ja3(), CHROME_JA3);
        assert_eq!(Hello::from_text("CD08E31494F9531F560D64C695473DA9"), Ok(hello));
        // Firefox 154 and 155, of which the newer counts; the MD5 is that of koon, as in the list.
        let hello = Hello::named("firefox-155").unwrap();
        assert_eq!(Hello::from_text("424f6d9c8b8928c0a0489a4f1a0f3e89"), Ok(hello));
    }

    #[test]
    fn a_ja3_string_is_written_as_it_is() {
        let read = Hello::from_text(CHROME_JA3).unwrap();
        // The nearest browser has the rest, and nothing else is left open.
        let chrome = Hello::named("chrome-99").unwrap();
        assert_eq!(read, chrome);
        let other = "771,4867-49195-49199,0-65281-10-11-35-13-43-51-45-16-22,29-24,0";
        let read = Hello::from_ja3(other).unwrap();
        assert_eq!(read.ja3(), other);
        assert_eq!(read.groups().collect::<Vec<_>>(), [29, 24]);
        assert_eq!(read.share_groups().collect::<Vec<_>>(), [29]);
        assert!(read.offers_version(0x0304) && !read.shuffle && read.session_id == 32);
        let tls12 = Hello::from_ja3("771,49195-49199,0-10-11-13,29-23,0").unwrap();
        assert!(!tls12.offers_version(0x0304) && tls12.session_id == 0);
        // A share of a group that the nearest browser does not begin with.
        let p384 = Hello::from_ja3("771,4865,0-10-13-43-51,24,").unwrap();
        assert_eq!(p384.share_groups().collect::<Vec<_>>(), [24]);
    }

    #[test]
    fn each_hello_of_the_list_comes_back_from_its_strings() {
        for one in Browser::all() {
            let hello = one.hello();
            let read = Hello::from_ja3(&hello.ja3()).unwrap();
            assert_eq!(read.ja3(), hello.ja3(), "{}", one.name);
            let signatures = hexadecimals(&hello.signature_schemes().collect::<Vec<_>>());
            let suites: Vec<u16> =
                hello.suites.iter().copied().filter(|suite| !is_grease(*suite)).collect();
            let ja4 = hello.ja4();
            let first = ja4.split('_').next().unwrap();
            let kinds: Vec<u16> = hello.kinds().collect();
            let text =
                format!("{first}_{}_{}_{signatures}", hexadecimals(&suites), hexadecimals(&kinds));
            let read = Hello::from_text(&text).unwrap();
            assert_eq!(read.ja4(), ja4, "{}", one.name);
            assert_eq!(read.kinds().collect::<Vec<_>>(), kinds, "{}", one.name);
        }
    }

    #[test]
    fn ja4_ro_has_its_order_and_what_was_left_out() {
        let text = "t13d0206h2_1302,1301_002b,0000,000d,0033,000a,0010_0403,0804";
        let hello = Hello::from_ja4_ro(text).unwrap();
        let without_grease: Vec<u16> =
            kinds(&hello).into_iter().filter(|kind| !is_grease(*kind)).collect();
        assert_eq!(without_grease, [0x2b, 0, 0x0d, 0x33, 0x0a, 0x10]);
        assert_eq!(hello.signature_schemes().collect::<Vec<_>>(), [0x0403, 0x0804]);
        assert_eq!(hello.alpn().next(), Some(&b"h2"[..]));
        // Without SNI and ALPN, as some tools write it.
        let text = "t13d0206h1_1302,1301_002b,000d,0033,000a_0403,0804";
        let hello = Hello::from_ja4_ro(text).unwrap();
        assert!(hello.offers_extension(0));
        assert_eq!(hello.alpn().collect::<Vec<_>>(), [b"http/1.1"]);
    }

    #[test]
    fn a_hash_selects_from_the_list_or_is_refused() {
        let firefox = Hello::from_text("t13d1717h2_5b57614c22b0_3cbfd9057e0d").unwrap();
        assert_eq!(firefox, Hello::named("firefox-135").unwrap());
        let error = |text: &str| Hello::from_text(text).unwrap_err();
        assert_eq!(error("t13d1717h2_5b57614c22b0_000000000000"), HelloError::Hash("a JA4 value"));
        assert!(matches!(error("00000000000000000000000000000000"), HelloError::Hash(_)));
        assert_eq!(error("t13d0206h2_1301,1302_000a,000d,002b,0033_0403"), HelloError::Sorted);
        let why = error("firefox-1133").to_string();
        assert!(why.contains("did you mean \"firefox-133\"?"), "{why}");
        assert_eq!(Hello::from_text(" Firefox-133 "), Ok(Hello::named("firefox-133").unwrap()));
    }

    #[test]
    fn other_texts_are_an_error() {
        for text in [
            "771,4865,0",
            "771,4865,0,29,0,0",
            "771,,0,29,0",
            "771,4865,0-0,29,0",
            "771,70000,0,29,0",
            "771,4865,0,29,256",
            "771,4865,0-10,,0",
            "2,4865,0,29,0",
            "t13d0206h2_1302_002b,0000,000d,0033,000a,0010_0403",
            "t13d0205h2_1302,1301_002b,0000,000d,0033,000a,0010_0403",
            "t13d0206zz_1302,1301_002b,0000,000d,0033,000a,0010_0403",
            "q13d0206h3_1302,1301_002b,0000,000d,0033,000a,0010_0403",
            "t12d0206h2_1302,1301_002b,0000,000d,0033,000a,0010_xyz",
        ] {
            let error = Hello::from_text(text).unwrap_err();
            assert!(matches!(error, HelloError::Ja3(_) | HelloError::Ja4(_)), "{text}: {error:?}");
        }
        assert_eq!(Hello::from_ja3("769,47,0,29,0"), Err(HelloError::Old));
    }

    #[test]
    fn a_fingerprint_of_a_resumed_session_and_grease_in_a_list_are_read() {
        let text = "t13d0207h2_1302,1301_002b,0000,000d,0033,000a,0010,0029_0403,0804";
        assert!(Hello::from_ja4_ro(text).unwrap().ja4().starts_with("t13d0206h2_"));
        assert_eq!(Hello::from_ja3("771,6682-4865,43,29,0").unwrap().suites[0], GREASE);
    }
}
