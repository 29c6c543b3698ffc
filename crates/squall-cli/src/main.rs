#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    squall_cli::main()
}
