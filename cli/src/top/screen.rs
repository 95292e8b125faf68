//! Terminal screen of `robocache top`, which is redrawn as the status files change. The terminal is restored when a key or an
//! error ends it.

use super::files::Status;
use super::lines::{self, HEADINGS, Line};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::{Cell, Row, Table};
use robocache::app::Level;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Period of reading the status files.
const READ_EVERY: Duration = Duration::from_millis(500);

/// Shows the status of all nodes until a key ends the command.
pub fn show(folder: &Path) -> eyre::Result<()> {
    if !std::io::stdout().is_terminal() {
        eyre::bail!("standard output is not a terminal (allowed there: --once, --json, --prometheus)");
    }
    // An unreadable folder is refused before the terminal is taken over.
    let mut status = Status::read(folder)?;
    let mut terminal = ratatui::try_init()?;
    let shown = (|| {
        let mut scroll = 0;
        let mut next_read = Instant::now() + READ_EVERY;
        loop {
            terminal.draw(|frame| scroll = draw(&status, scroll, frame))?;
            if event::poll(next_read.saturating_duration_since(Instant::now()))?
                && let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                match to(key, scroll) {
                    None => return Ok(()),
                    Some(moved) => scroll = moved,
                }
            }
            if Instant::now() >= next_read {
                next_read = Instant::now() + READ_EVERY;
                status = Status::read(folder)?;
            }
        }
    })();
    ratatui::restore();
    shown
}

/// Returns the index of the first line to show after a key press; `scroll` is the index before it. `None` if the key ends
/// the command.
fn to(key: KeyEvent, scroll: usize) -> Option<usize> {
    const PAGE: usize = 10;
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => None,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => None,
        KeyCode::Up => Some(scroll.saturating_sub(1)),
        KeyCode::Down => Some(scroll + 1),
        KeyCode::PageUp => Some(scroll.saturating_sub(PAGE)),
        KeyCode::PageDown => Some(scroll + PAGE),
        KeyCode::Home => Some(0),
        _ => Some(scroll),
    }
}

/// Draws the lines from `scroll` on, and returns the position that was drawn: `scroll`, limited so that the lines fill
/// the screen.
fn draw(status: &Status, scroll: usize, frame: &mut Frame<'_>) -> usize {
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    let lines = lines::of(status);
    let width = usize::from(middle.width);
    let reasons = lines::reasons(status);
    let reasons = reasons.iter().flat_map(|reason| {
        let style = of_level(reason.level);
        reason
            .lines(width)
            .into_iter()
            .map(move |line| Text::styled(line, style))
    });
    let reasons: Vec<Text<'_>> = reasons.collect();
    let room = usize::from(middle.height).saturating_sub(1);
    let scroll = scroll.min((reasons.len() + lines.len()).saturating_sub(room));
    // Problems stand above the table, and scroll off the screen first.
    let shown = scroll.min(reasons.len());
    let height = u16::try_from(reasons.len() - shown).unwrap_or(u16::MAX);
    let [upper, lower] =
        Layout::vertical([Constraint::Length(height.min(middle.height)), Constraint::Min(0)]).areas(middle);
    for (line, row) in reasons[shown..].iter().zip(upper.rows()) {
        frame.render_widget(line, row);
    }
    let bad = status
        .nodes
        .iter()
        .filter(|node| !node.is_ended() && node.level > Level::Warn);
    let title = match (status.nodes.len(), bad.count()) {
        (0, _) => format!("{}: no node has written its status yet", status.folder.display()),
        (nodes, bad) => format!("{}: {nodes} nodes, {bad} in error or stale", status.folder.display()),
    };
    frame.render_widget(Text::raw(title), top);
    frame.render_widget(table(&lines, scroll - shown), lower);
    frame.render_widget(Text::raw("q ends, up and down scroll"), bottom);
    scroll
}

fn table(lines: &[Line], scroll: usize) -> Table<'_> {
    let widths = (0..HEADINGS.len()).map(|column| {
        let cells = lines.iter().map(|line| line.cells[column].chars().count());
        let widest = cells.chain([heading(column).chars().count()]).max().unwrap_or(0);
        let widest = u16::try_from(widest.min(40)).unwrap_or(40);
        // If the screen is too narrow, long names are cut, not numbers.
        match column {
            0 => Constraint::Max(widest),
            _ => Constraint::Length(widest),
        }
    });
    let header = (0..HEADINGS.len()).map(|column| cell(column, heading(column)));
    let rows = lines.iter().skip(scroll).map(|line| {
        let cells = line.cells.iter().enumerate();
        Row::new(cells.map(|(column, text)| cell(column, text))).style(style(line))
    });
    Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::UNDERLINED)))
        .column_spacing(1)
}

fn heading(column: usize) -> &'static str {
    HEADINGS[column].trim_start_matches('<')
}

/// Makes a cell, with text aligned left and numbers right.
fn cell(column: usize, text: &str) -> Cell<'_> {
    let text = Text::raw(text);
    Cell::new(match HEADINGS[column].starts_with('<') {
        true => text,
        false => text.right_aligned(),
    })
}

fn style(line: &Line) -> Style {
    let style = match line.is_ended {
        true => Style::new().add_modifier(Modifier::DIM),
        false => of_level(line.level),
    };
    match line.is_node {
        true => style.add_modifier(Modifier::BOLD),
        false => style,
    }
}

fn of_level(level: Level) -> Style {
    match level {
        Level::Ok => Style::new(),
        Level::Warn => Style::new().fg(Color::Yellow),
        Level::Error => Style::new().fg(Color::Red),
        Level::Stale => Style::new().fg(Color::Magenta),
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::{fuse, node};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn status() -> Status {
        let mut old = fuse();
        old.node = "voxelize".into();
        old.inputs.clear();
        Status {
            folder: "/run/robot".into(),
            nodes: vec![node(&fuse(), 1.0), node(&old, 30.0)],
        }
    }

    fn drawn(status: &Status, scroll: usize, height: u16) -> (Vec<String>, usize, TestBackend) {
        let mut terminal = Terminal::new(TestBackend::new(80, height)).unwrap();
        let mut at = 0;
        terminal.draw(|frame| at = draw(status, scroll, frame)).unwrap();
        let backend = terminal.backend().clone();
        let lines = backend.to_string();
        let lines = lines.lines().map(|line| line.trim_matches('"').trim_end().to_owned());
        (lines.collect(), at, backend)
    }

    #[test]
    fn a_screen_says_first_what_is_wrong_and_whole_and_then_has_a_line_for_each_node_and_input() {
        let mut status = status();
        let long = "no observation for 12.0 s: `camera`: its first stamp is 1700000000: the time in seconds (needed: `timestamp_ns` in ns)";
        status.nodes[0].report.as_mut().unwrap().inputs[1].message = long.into();
        let (lines, _, backend) = drawn(&status, 0, 14);
        let wanted = [
            "/run/robot: 2 nodes, 2 in error or stale",
            "stale  fuse: wrist: `lidar \"top\"`: nothing has come for 4.0 s",
            "stale  voxelize: it has said nothing for 30 s: it hangs, or was killed",
            "error  fuse: `camera`: no observation for 12.0 s: `camera`: its first stamp is",
            "       1700000000: the time in seconds (needed: `timestamp_ns` in ns)",
            "node, input         level   Hz age p50 p99 ms valid % late dropped faults device",
        ];
        for (line, wanted) in lines.iter().zip(wanted) {
            assert_eq!(line, wanted);
        }
        let shown: Vec<Vec<&str>> = lines[6..11]
            .iter()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(shown[0], ["fuse", "stale", "48.5", "2.00", "40.0", "cpu"]);
        assert_eq!(
            shown[2],
            ["camera", "error", "30.0", "33.0", "120", "25.0", "12", "7", "3"]
        );
        assert_eq!(shown[4], ["voxelize", "stale", "48.5", "2.00", "40.0", "cpu"]);
        assert_eq!(lines[13], "q ends, up and down scroll");
        let red = (0..80).filter(|&x| backend.buffer()[(x, 8)].fg == Color::Red).count();
        assert_eq!(red, 80, "the line of the camera");
        assert_eq!(backend.buffer()[(0, 3)].fg, Color::Red);
    }

    #[test]
    fn it_scrolls_no_further_than_there_are_lines() {
        let (lines, at, _) = drawn(&status(), 99, 6);
        assert_eq!(at, 5);
        assert!(
            lines[2].starts_with("  camera") && lines[4].starts_with("voxelize"),
            "{lines:?}"
        );
        assert_eq!(drawn(&status(), 1, 30).1, 0);
        // A window of no size draws nothing, and does no harm.
        for height in 1..4 {
            drawn(&status(), 0, height);
        }
        let none = Status {
            folder: "/run/robot".into(),
            nodes: Vec::new(),
        };
        assert_eq!(
            drawn(&none, 3, 5).0[0],
            "/run/robot: no node has written its status yet"
        );
    }

    #[test]
    fn keys_end_and_scroll() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert_eq!(to(key(KeyCode::Char('q')), 1), None);
        assert_eq!(to(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 1), None);
        assert_eq!(to(key(KeyCode::Char('c')), 1), Some(1));
        assert_eq!((to(key(KeyCode::Up), 0), to(key(KeyCode::Down), 0)), (Some(0), Some(1)));
    }
}
