//! Finds and loads the C shim; declares the types of `shim/squall_dpdk.h` in Rust.

use std::{
    ffi::{CStr, OsString, c_char, c_int},
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
    sync::Mutex,
};

use libloading::Library;
use squall_port::Address;

/// `SQ_ABI` of `squall_dpdk.h`, whose layouts are declared below.
const ABI: u32 = 3;
const FILE: &str = "libsquall_dpdk.so";
const VARIABLE: &str = "SQUALL_DPDK_SHIM";

/// A result of `tx_send`: the frame is too short (-1: too long).
pub const TOO_SHORT: c_int = -2;
/// A result of `tx_send`: the driver cannot cut the frame.
pub const REFUSED: c_int = -3;

pub const RX_TIMESTAMP: u32 = 1;
pub const TX_LAUNCH: u32 = 2;
pub const RSS: u32 = 4;
pub const MULTI_SEGS: u32 = 8;
pub const CLOCK: u32 = 16;
pub const COUNT_DOWN: u32 = 32;
pub const BORROWED: u32 = 64;
pub const TX_TCP_CUT: u32 = 128;
pub const SYMMETRIC: u32 = 256;
pub const ISOLATED: u32 = 512;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceFacts {
    pub driver: [c_char; 64],
    pub mac: [u8; 6],
    pub link_up: u8,
    pub has_mac: u8,
    pub speed_mbps: u32,
    pub min_mtu: u32,
    pub max_mtu: u32,
    pub max_tx_queues: u32,
    pub max_rx_queues: u32,
    pub offers: u32,
    pub socket: i32,
    pub rss_entries: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    pub tx_queues: u32,
    pub rx_queues: u32,
    pub mtu: u32,
    pub tx_descriptors: u32,
    pub rx_descriptors: u32,
    pub mbufs: u32,
    pub using: u32,
}

/// `struct sq_rule`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub address: [u8; 16],
    pub family: u8,
    pub bits: u8,
    pub protocol: u8,
    pub unused: u8,
    pub to_port: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub tx_errors: u64,
    pub rx_packets: u64,
    pub rx_octets: u64,
    pub rx_missed: u64,
    pub rx_no_mbuf: u64,
    pub rx_errors: u64,
}

/// The same point in time on both clocks, `CLOCK_MONOTONIC` and the device's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ClockPair {
    pub monotonic_ns: i64,
    pub ticks: i64,
    pub ticks_per_ns: f64,
}

/// `struct sq_cut`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCut {
    pub size: u16,
    pub l2: u8,
    pub l3: u8,
    pub l4: u8,
    pub ipv6: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    pub offset: u64,
    pub len: u32,
    pub wire_len: u32,
    pub ticks: u64,
}

/// `struct sq_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub base: *const u8,
    pub octets: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SlotPlace {
    pub base: *mut u8,
    pub stride: u64,
    pub count: u32,
}

/// A transmit queue of the shim.
#[repr(C)]
pub struct Tx {
    _opaque: [u8; 0],
}

/// A receive queue of the shim.
#[repr(C)]
pub struct Rx {
    _opaque: [u8; 0],
}

/// `struct sq_api`; the header describes the functions.
#[repr(C)]
pub struct Api {
    pub abi: u32,
    pub built_for: *const c_char,
    pub running: *const c_char,

    pub hugepages_fit: unsafe extern "C" fn(u64) -> c_int,
    pub start: unsafe extern "C" fn(c_int, *mut *mut c_char) -> c_int,
    pub log: unsafe extern "C" fn(*mut c_char, usize),

    pub attach:
        unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, *mut u16) -> c_int,
    pub describe: unsafe extern "C" fn(u16, *mut DeviceFacts) -> c_int,
    pub configure: unsafe extern "C" fn(u16, *mut Config) -> c_int,
    pub steer: unsafe extern "C" fn(u16, *const Rule, *mut c_char, usize) -> c_int,
    pub link: unsafe extern "C" fn(u16, *mut u32) -> c_int,
    pub counters: unsafe extern "C" fn(u16, *mut Counters) -> c_int,
    pub read_clock: unsafe extern "C" fn(u16, *mut u64) -> c_int,
    pub detach: unsafe extern "C" fn(u16) -> c_int,

    pub tx_open: unsafe extern "C" fn(u16, u16, u32, u32, *mut *mut Tx, *mut SlotPlace) -> c_int,
    pub tx_lend: unsafe extern "C" fn(*mut Tx, u32, *mut u32) -> u32,
    pub tx_send: unsafe extern "C" fn(
        *mut Tx,
        u32,
        *const u32,
        *const u64,
        usize,
        *const ClockPair,
        *const DeviceCut,
    ) -> c_int,
    pub tx_held: unsafe extern "C" fn(*mut Tx) -> u32,
    pub tx_close: unsafe extern "C" fn(*mut Tx),

    pub rx_open: unsafe extern "C" fn(u16, u16, *mut *mut Rx, *mut Region) -> c_int,
    pub rx_receive:
        unsafe extern "C" fn(*mut Rx, *mut u8, u32, *mut Frame, *mut u64, *mut u32) -> u32,
    pub rx_close: unsafe extern "C" fn(*mut Rx),
}

// SAFETY: the shim writes the table once, before it returns it; the texts are static.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

impl Api {
    /// The loaded release, such as "DPDK 22.11.11".
    pub fn version(&self) -> String {
        // SAFETY: the shim guarantees static text with a final 0.
        unsafe { CStr::from_ptr(self.running) }.to_string_lossy().into_owned()
    }

    /// The last lines that DPDK has logged after the previous call.
    pub fn take_log(&self) -> String {
        let mut text = [0u8; 4097];
        // SAFETY: the shim writes at most the length given, with a final 0.
        unsafe { (self.log)(text.as_mut_ptr().cast(), text.len()) };
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy();
        // Returns only the last lines, because DPDK logs much about virtual devices at each start.
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(8)..].join("\n    ")
    }

    /// Makes an error from DPDK's `code`, with DPDK's log; `doing` completes "DPDK cannot ...".
    pub fn error(&self, address: &Address, doing: &str, code: c_int) -> io::Error {
        let error = io::Error::from_raw_os_error(-code);
        let mut text = format!("{address}: DPDK cannot {doing}: {error}");
        let log = self.take_log();
        if !log.is_empty() {
            let _ = write!(text, "\n  DPDK's log:\n    {log}");
        }
        io::Error::new(error.kind(), text)
    }
}

/// Returns the shim's table of functions. The first successful call loads the shim permanently,
/// because DPDK cannot be unloaded.
pub fn load(address: &Address) -> io::Result<&'static Api> {
    static LOADED: Mutex<Option<&'static Api>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(api) = *loaded {
        return Ok(api);
    }
    let elevated = is_elevated();
    let file = find(address, std::env::var_os(VARIABLE), elevated)?;
    if elevated {
        clear_environment();
    }
    let api = open(&file, address)?;
    *loaded = Some(api);
    Ok(api)
}

/// Path of the shim: the file `named`; otherwise the first file found in the program's directory,
/// ../lib/squall or a build's target directory; otherwise the bare name, for the system's loader. A
/// program with more rights than its user searches only system directories.
fn find(address: &Address, named: Option<OsString>, elevated: bool) -> io::Result<PathBuf> {
    let named = named.filter(|v| !v.is_empty());
    if elevated {
        if named.is_some() {
            let text = format!(
                "{address}: a program with file capabilities does not accept {VARIABLE}, as it \
                 would run that file\n  {FIXED}"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        // The program's own directory is not safe: any user may make a hard link to the program in
        // their own directory, and the link has the program's capabilities too.
        let found =
            FOLDERS.iter().map(|folder| Path::new(folder).join(FILE)).find(|place| place.is_file());
        return Ok(found.unwrap_or_else(|| PathBuf::from(FILE)));
    }
    if let Some(named) = named {
        let named = PathBuf::from(named);
        if !named.is_file() {
            let text = format!("{address}: {VARIABLE}={} is not a file; {HELP}", named.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        return Ok(named);
    }
    let program = std::env::current_exe().unwrap_or_default();
    Ok(places(&program)
        .into_iter()
        .find(|place| place.is_file())
        .unwrap_or_else(|| PathBuf::from(FILE)))
}

/// Whether the program got rights from its file (`setcap`, set-user-id): then it must not trust its
/// environment.
pub fn is_elevated() -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Removes environment variables, because drivers' libraries load further libraries named by
/// variables (`RDMAV_DRIVERS`). The checks in those libraries compare user ids, which file
/// capabilities do not change.
fn clear_environment() {
    for (name, _) in std::env::vars_os() {
        if !KEPT_VARIABLES.iter().any(|kept| name == *kept) {
            // SAFETY: readers in Rust share a lock with this call. No library reads the environment
            // at this time: ports open before workers start.
            unsafe { std::env::remove_var(name) };
        }
    }
}

const KEPT_VARIABLES: [&str; 9] = [
    "HOME",
    "LANG",
    "NO_COLOR",
    "PATH",
    "SQUALL_TOKEN",
    "TERM",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];

/// Directories that only root can write to.
const FOLDERS: [&str; 2] = ["/usr/local/lib/squall", "/usr/lib/squall"];
const FIXED: &str = "copy the shim to /usr/local/lib/squall, or start Squall with sudo";

const HELP: &str = "try `make dpdk` in Squall's source folder (it needs DPDK 22.11 or newer with \
                    its development files, in Debian `apt-get install libdpdk-dev`), or set \
                    SQUALL_DPDK_SHIM to the file";

fn places(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new("."));
    let target = folder.ancestors().filter(|a| a.file_name().is_some_and(|name| name == "target"));
    [folder.join(FILE), folder.join("../lib/squall").join(FILE)]
        .into_iter()
        .chain(target.map(|t| t.join(FILE)))
        .collect()
}

fn open(file: &Path, address: &Address) -> io::Result<&'static Api> {
    // SAFETY: by its name and directory the file is the shim, whose constructors only register a
    // kind of mempool.
    let library = unsafe { Library::new(file) }.map_err(|error| {
        let error = cause(&error);
        let found = file.components().count() > 1;
        let text = if found {
            format!(
                "{address}: cannot load the DPDK shim {}: {error}\n  DPDK's libraries may be \
                 missing, or belong to another release than it was built for; {HELP}",
                file.display()
            )
        } else {
            format!("{address}: dpdk ports need {FILE}, which is not installed ({error})\n  {HELP}")
        };
        io::Error::new(io::ErrorKind::NotFound, text)
    })?;
    // Never unloaded, because DPDK's threads run in it from now on.
    let library: &'static Library = Box::leak(Box::new(library));
    let strange = |what: String| {
        let text = format!("{address}: {}: {what}; {HELP}", file.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    // SAFETY: the function has this type in every version of squall_dpdk.h.
    let abi = unsafe { library.get::<unsafe extern "C" fn() -> u32>(c"squall_dpdk_abi") }
        .map_err(|error| strange(format!("is not Squall's shim: {}", cause(&error))))?;
    // SAFETY: takes no arguments and has no effects.
    let found = unsafe { abi() };
    // The version is checked before the table is read, because another version has other layouts.
    if found != ABI {
        return Err(strange(format!(
            "is a shim with interface {found}, expected {ABI}: it belongs to another release"
        )));
    }
    // SAFETY: as above.
    let api = unsafe { library.get::<unsafe extern "C" fn(u32) -> *const Api>(c"squall_dpdk_api") }
        .map_err(|error| strange(format!("is not Squall's shim: {}", cause(&error))))?;
    // SAFETY: any number is allowed.
    let api = unsafe { api(ABI) };
    // SAFETY: NULL, or a static table with the layout of that version.
    unsafe { api.as_ref() }
        .filter(|api| api.abi == ABI)
        .ok_or_else(|| strange("has no table of functions".into()))
}

/// The loader's message: libloading's own text only reports that loading failed.
fn cause(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without this rule a user could name their own shim, and run code with the program's
    /// capabilities.
    #[test]
    fn an_elevated_program_takes_no_shim_from_its_user() {
        let address: Address = "dpdk:vdev=net_null0".parse().unwrap();
        let named = std::env::current_exe().unwrap();
        assert_eq!(find(&address, Some(named.clone().into()), false).unwrap(), named);
        let refused = find(&address, Some(named.into()), true).unwrap_err().to_string();
        assert!(
            refused.contains("file capabilities") && refused.contains("/usr/local/lib/squall"),
            "{refused}"
        );
        let found = find(&address, None, true).unwrap();
        assert!(
            found == Path::new(FILE) || FOLDERS.iter().any(|folder| found.starts_with(folder)),
            "{found:?}"
        );
        assert!(!is_elevated());
    }

    #[test]
    fn the_shim_is_searched_next_to_the_program_in_lib_and_in_target() {
        let places = |program: &str| -> Vec<String> {
            super::places(Path::new(program)).into_iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(
            places("/usr/local/bin/squall"),
            ["/usr/local/bin/libsquall_dpdk.so", "/usr/local/bin/../lib/squall/libsquall_dpdk.so"]
        );
        assert_eq!(
            places("/src/target/debug/deps/test")[2..],
            ["/src/target/libsquall_dpdk.so"],
            "where make dpdk puts it"
        );
    }
}
