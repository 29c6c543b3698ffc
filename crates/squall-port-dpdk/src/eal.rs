//! DPDK's environment (EAL), started once per process when the first port opens.

use std::{
    ffi::{CString, c_char},
    fs, io,
    sync::{Mutex, PoisonError},
};

use squall_port::Address;

use crate::{
    device::Bus,
    shim::{self, Api},
};

/// Hugepages are used by default if at least this amount is free.
const MIN_FREE_HUGE_MB: u32 = 256;
/// Size of memory without hugepages, which cannot grow. The system provides its pages only when
/// they are used.
const DEFAULT_MB: u32 = 512;

/// Options of an address for the EAL, which only the first port of a process can set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EalOptions {
    /// Amount of hugepages to use, MB; 0: none.
    pub huge_mb: Option<u32>,
    /// Amount of memory without hugepages, MB.
    pub memory_mb: Option<u32>,
    /// More arguments, separated by `;`.
    pub arguments: Option<String>,
}

/// A started EAL.
#[derive(Clone)]
pub struct Eal {
    pub api: &'static Api,
    /// The release and the kind of its memory: "DPDK 22.11.11 without hugepages".
    pub about: String,
    options: EalOptions,
    /// The address that started the EAL.
    started_by: String,
}

pub fn start(address: &Address, options: &EalOptions, bus: Bus) -> io::Result<Eal> {
    // A failure is stored too: DPDK cannot be started a second time in a process.
    static STARTED: Mutex<Option<Result<Eal, String>>> = Mutex::new(None);
    let api = shim::load(address)?;
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if started.is_none() {
        let memory = Memory::choose(address, api, options)?;
        *started = Some(
            run(api, address, options, memory.arguments(bus), memory.about())
                .map_err(|error| error.to_string()),
        );
    }
    let eal = match started.as_ref().expect("it was just set") {
        Ok(eal) => eal.clone(),
        Err(error) => return Err(io::Error::other(error.clone())),
    };
    if *options != EalOptions::default() && *options != eal.options {
        let text = format!(
            "huge, memory and eal are only possible on the first dpdk port of a process: {} has \
             started DPDK already",
            eal.started_by
        );
        return Err(address.error(text).into());
    }
    Ok(eal)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// `mb` at the start, and more when needed.
    Hugepages { mb: Option<u32> },
    /// Ordinary pages: `mb`, allocated at once.
    Pages { mb: u32 },
}

impl Memory {
    fn choose(address: &Address, api: &Api, options: &EalOptions) -> io::Result<Self> {
        // SAFETY: any number is allowed.
        let fit = |mb: u32| unsafe { (api.hugepages_fit)(u64::from(mb) << 20) } == 1;
        let pages = Self::Pages { mb: options.memory_mb.unwrap_or(DEFAULT_MB) };
        match options.huge_mb {
            Some(0) => Ok(pages),
            Some(mb) if fit(mb) => Ok(Self::Hugepages { mb: Some(mb) }),
            Some(mb) => {
                let text = format!(
                    "{address}: cannot get {mb} MB of hugepages\n  try: echo {} | \
                     sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages, or huge=0 \
                     to go without",
                    mb.div_ceil(2)
                );
                Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
            }
            None if options.memory_mb.is_none() && fit(MIN_FREE_HUGE_MB) => {
                Ok(Self::Hugepages { mb: None })
            }
            None => Ok(pages),
        }
    }

    fn arguments(self, bus: Bus) -> Vec<String> {
        match self {
            // With --in-memory no file is made in /dev/hugepages or /run, so nothing is left when
            // the process is killed.
            Self::Hugepages { mb } => {
                let amount = mb.into_iter().flat_map(|mb| ["-m".to_owned(), mb.to_string()]);
                // Large regions are rarely contiguous in physical addresses, which DPDK prefers if
                // it has the choice. Only a NIC without an IOMMU needs physical addresses.
                let virtual_addresses = (bus == Bus::Virtual).then(|| "--iova-mode=va".to_owned());
                ["--in-memory".to_owned()]
                    .into_iter()
                    .chain(virtual_addresses)
                    .chain(amount)
                    .collect()
            }
            // DPDK 22.11 refuses --in-memory with --no-huge; --no-shconf and no hugepage files have
            // the same effect.
            Self::Pages { mb } => ["--no-huge", "--no-shconf", "--iova-mode=va", "-m"]
                .map(str::to_owned)
                .into_iter()
                .chain([mb.to_string()])
                .collect(),
        }
    }

    fn about(self) -> String {
        match self {
            Self::Hugepages { .. } => "with hugepages".into(),
            Self::Pages { mb } => format!(
                "without hugepages ({mb} MB of ordinary pages: more TLB misses, and a NIC needs \
                 an IOMMU; huge=MB uses hugepages)"
            ),
        }
    }
}

fn run(
    api: &'static Api,
    address: &Address,
    options: &EalOptions,
    memory: Vec<String>,
    about: String,
) -> io::Result<Eal> {
    let mut arguments = vec![
        "squall".to_owned(),
        // Telemetry would bind a socket in /run/dpdk and serve it with its own thread. The socket
        // would also stay in the directory, which the shim could then not remove because it is not
        // empty.
        "--no-telemetry".into(),
        // Names an empty directory in /run/dpdk, which the shim removes. The name is the same for
        // all processes, because a process killed in between leaves the directory.
        "--file-prefix=squall".into(),
        // One logical core on all allowed CPUs: Squall's threads are not pinned to DPDK's cores,
        // and DPDK's own threads may run wherever this process may.
        format!("--lcores=0@({})", allowed_cpus()),
        // Prevents a probe of all devices: the allow list has only an address that does not exist,
        // and ports are added one by one.
        "--allow=ffff:ff:1f.7".into(),
    ];
    arguments.extend(memory);
    arguments
        .extend(options.arguments.iter().flat_map(|a| a.split(';')).map(|a| a.trim().to_owned()));
    let texts: Vec<CString> = arguments
        .iter()
        .map(|a| CString::new(a.as_str()))
        .collect::<Result<_, _>>()
        .map_err(|_| address.error("an argument of the EAL has a 0 octet in it"))?;
    // Start the EAL on a thread of its own, because it makes the calling thread the main lcore and
    // gives it an lcore id.
    let starting = std::thread::Builder::new().name("squall-eal".into()).spawn(move || {
        let mut pointers: Vec<*mut c_char> = texts.iter().map(|a| a.as_ptr().cast_mut()).collect();
        pointers.push(std::ptr::null_mut());
        // SAFETY: the arguments are as for main(): the number of texts given, then NULL. The EAL
        // reorders the pointers, not the texts, and keeps copies.
        let code = unsafe { (api.start)(texts.len() as i32, pointers.as_mut_ptr()) };
        // The texts are not freed, because getopt(3) keeps a pointer to where it stopped.
        std::mem::forget(texts);
        code
    })?;
    let code = starting
        .join()
        .map_err(|_| io::Error::other("the thread that starts DPDK has panicked"))?;
    if code != 0 {
        return Err(api.error(address, "start", code));
    }
    // Discards the messages of a successful start (no free hugepages, no VFIO ...).
    api.take_log();
    let about = format!("{} {about}", api.version());
    Ok(Eal { api, about, options: options.clone(), started_by: address.to_string() })
}

/// The CPU list in the kernel's form: `0-3,8`.
fn allowed_cpus() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .map_or_else(|| "0".to_owned(), |list| list.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_hugepages_nothing_is_left_in_the_file_system_either() {
        assert_eq!(
            Memory::Pages { mb: 512 }.arguments(Bus::Pci),
            ["--no-huge", "--no-shconf", "--iova-mode=va", "-m", "512"]
        );
        assert_eq!(
            Memory::Hugepages { mb: None }.arguments(Bus::Virtual),
            ["--in-memory", "--iova-mode=va"]
        );
        assert_eq!(
            Memory::Hugepages { mb: Some(64) }.arguments(Bus::Pci),
            ["--in-memory", "-m", "64"]
        );
    }

    #[test]
    fn the_cpus_of_this_thread_are_known() {
        assert!(allowed_cpus().starts_with(|c: char| c.is_ascii_digit()), "{}", allowed_cpus());
    }
}
