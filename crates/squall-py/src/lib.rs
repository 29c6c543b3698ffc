//! `squall._native`, the native part of the Python package. It only converts between Python and the
//! facade.
//!
//! Small values are passed as JSON that follows the schemas, frames and histograms as octets. Calls
//! that may block run detached from the interpreter. No lock is held while they attach again: a
//! thread that waits for the lock may hold the interpreter.

mod capture;
mod captures;
mod edit;
mod error;
mod otg;
mod plan;
mod ports;
mod prep;
mod profile;
mod report;
mod score;
mod session;
mod test;
mod trex;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use capture::capture;
    #[pymodule_export]
    use captures::{Info, info};
    #[pymodule_export]
    use edit::edit;
    #[pymodule_export]
    use otg::Otg;
    #[pymodule_export]
    use plan::Plan;
    #[pymodule_export]
    use ports::ports;
    #[pymodule_export]
    use prep::prep;
    #[pymodule_export]
    use profile::Profile;
    #[pymodule_export]
    use report::{Report, whole};
    #[pymodule_export]
    use score::score;
    #[pymodule_export]
    use session::{Run, Session};
    #[pymodule_export]
    use test::{render_test, run_ab, run_test};
    #[pymodule_export]
    use trex::{trex_factor, trex_streams};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
