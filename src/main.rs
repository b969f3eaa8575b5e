//! Decides the role and the exit code, nothing else.

fn main() {
    std::process::exit(bailiwick::cli::main(bailiwick::tools::TOOLS));
}
