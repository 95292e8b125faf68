//! `robocache plot`: channels of a recording as a picture.

use crate::channel::{self, Channel};
use crate::output::{self, Output, figure, plain};
use crate::track::{Lines, Tracks};
use plotters::prelude::*;
use robocache::time::ns_to_ms;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Lines in a picture.
const MOST_CHANNELS: usize = 32;

/// Points of a line are about as far apart as those of the picture, px.
const MOST_POINTS: usize = 1000;

const SIZE: (u32, u32) = (1200, 460);

/// Room for the names, and for each of them, px.
const NAMES: u32 = 170;
const LINE: i32 = 13;

/// What a picture begins with.
const START: &str = "<svg";

const COLOURS: [RGBColor; 8] = [
    RGBColor(37, 99, 235),
    RGBColor(217, 119, 6),
    RGBColor(5, 150, 105),
    RGBColor(220, 38, 38),
    RGBColor(124, 58, 237),
    RGBColor(8, 145, 178),
    RGBColor(190, 24, 93),
    RGBColor(77, 124, 15),
];

/// Draws channels of a recording over time, as an SVG
///
/// STREAM alone is all of its channels. Of observations the newest row of each is drawn. A line ends where a value is not
/// valid or not finite, and at a gap: a step of more than 1.5 times the median one. Where there are many samples, two points
/// stand for those of a time: the least and the greatest.
#[derive(clap::Args)]
#[command(after_help = format!("{}

Exit codes:
  0   it is drawn
  1   it is drawn, but for a part of the recording that can't be read
  2   a channel or the recording can't be used, or the picture can't be written", channel::NAMING))]
pub struct Args {
    /// The folder of the recording
    recording: PathBuf,
    /// What is drawn
    #[arg(required = true, value_name = "CHANNEL")]
    channels: Vec<String>,
    /// The picture; an older one is written over
    #[arg(short, long, value_name = "FILE.svg", default_value = "plot.svg")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Drawn {
    picture: PathBuf,
    /// The time that two points stand for at most, ms; 0 where each sample is drawn.
    width_ms: f64,
    channels: Vec<Line>,
    /// What can't be read.
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    samples: usize,
    /// Samples that are not valid, or not finite.
    missing: usize,
    min: Option<f64>,
    max: Option<f64>,
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let words: Vec<&str> = args.channels.iter().map(String::as_str).collect();
    let (channels, problems) = channel::read(&args.recording, &words, MOST_CHANNELS)?;
    let tracks: Vec<Tracks> = channels.iter().map(tracks).collect();
    let stretches = || tracks.iter().flat_map(|tracks| &tracks.stretches);
    if let Some(tracks) = tracks.iter().position(|tracks| tracks.stretches.len() > 1) {
        eyre::bail!(
            "`{}`: its clock was set in the recording: time goes back by more than a second, or ahead by more than an hour (allowed: \
             stamps of one clock; `robocache report` draws the parts)",
            channels[tracks].name
        );
    }
    let lines: Vec<Lines> = stretches().map(|track| track.lines()).collect();
    let text = picture(&channels, &lines)?;
    let path = &args.output;
    let text = text.strip_prefix(START).unwrap_or(&text);
    output::write(path, START, text)?;
    let drawn = Drawn {
        picture: path.clone(),
        width_ms: ns_to_ms(stretches().map(|track| track.width_ns()).max().unwrap_or(0)),
        channels: channels.into_iter().map(line).collect(),
        problems,
    };
    output.result(&drawn, text_of)?;
    Ok(ExitCode::from(u8::from(!drawn.problems.is_empty())))
}

fn tracks(channel: &Channel) -> Tracks {
    let mut tracks = Tracks::new(1, MOST_POINTS);
    for (&time_ns, &value) in channel.times_ns.iter().zip(&channel.values) {
        tracks.push(time_ns, &[value]);
    }
    tracks
}

fn line(channel: Channel) -> Line {
    let finite = || channel.values.iter().copied().filter(|value| value.is_finite());
    Line {
        samples: channel.values.len(),
        missing: channel.values.len() - finite().count(),
        min: finite().min_by(f64::total_cmp),
        max: finite().max_by(f64::total_cmp),
        name: channel.name,
    }
}

/// The picture: time in seconds from the first stamp of any channel.
fn picture(channels: &[Channel], lines: &[Lines]) -> eyre::Result<String> {
    let times = || lines.iter().flat_map(|lines| &lines.times_ns).copied();
    let (Some(first), Some(last)) = (times().min(), times().max()) else {
        eyre::bail!("no sample to draw");
    };
    let seconds = |ns: i64| (i128::from(ns) - i128::from(first)) as f64 / 1e9;
    let values = || {
        lines
            .iter()
            .flat_map(|lines| lines.columns[0].iter().flatten().copied())
    };
    let low = values().min_by(f64::total_cmp).unwrap_or(0.0);
    let high = values().max_by(f64::total_cmp).unwrap_or(0.0);
    // Of halves: the difference of the ends may be more than there are numbers for.
    let margin = ((high / 2.0 - low / 2.0) * 0.1)
        .max(low.abs().max(high.abs()) * 1e-6)
        .max(1e-12);
    let (low, high) = ((low - margin).max(-f64::MAX / 4.0), (high + margin).min(f64::MAX / 4.0));
    let end = seconds(last).max(1e-9);

    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let failed = |error: DrawingAreaErrorKind<_>| eyre::eyre!("the picture can't be drawn: {error}");
        area.fill(&WHITE).map_err(failed)?;
        let (chart_area, names) = area.split_horizontally(SIZE.0 - NAMES);
        let mut chart = ChartBuilder::on(&chart_area)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end, low..high)
            .map_err(failed)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("s")
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.1));
        mesh.y_label_formatter(&|value| figure(*value)).draw().map_err(failed)?;
        for (i, (channel, lines)) in channels.iter().zip(lines).enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let points = lines
                .times_ns
                .iter()
                .map(|&ns| seconds(ns))
                .zip(lines.columns[0].iter().copied());
            let points: Vec<(f64, Option<f64>)> = points.collect();
            // The pieces between values that are missing. One of a single point is drawn as a dot.
            let pieces = points.split(|(_, value)| value.is_none());
            let pieces = pieces.map(|piece| piece.iter().filter_map(|&(x, y)| Some((x, y?))).collect::<Vec<_>>());
            for piece in pieces.filter(|piece| !piece.is_empty()) {
                match piece[..] {
                    [dot] => chart
                        .draw_series([Circle::new(dot, 1, colour.filled())])
                        .map_err(failed)?,
                    _ => chart
                        .draw_series(LineSeries::new(piece, colour.stroke_width(1)))
                        .map_err(failed)?,
                };
            }
            let y = 20 + LINE * i as i32;
            names
                .draw(&PathElement::new([(4, y), (20, y)], colour))
                .map_err(failed)?;
            let style = ("sans-serif", 12).into_text_style(&names);
            names
                .draw(&Text::new(shortened(&plain(&channel.name)), (26, y - 6), style))
                .map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

/// A name that there is room for: its end says which channel it is.
fn shortened(name: &str) -> String {
    let letters = name.chars().count();
    if letters <= 22 {
        return name.to_owned();
    }
    format!("…{}", name.chars().skip(letters - 21).collect::<String>())
}

fn text_of(drawn: &Drawn) -> String {
    let mut text = format!("{}: ", output::path(&drawn.picture));
    text += &match drawn.width_ms {
        0.0 => "each sample is drawn\n".to_owned(),
        width => format!(
            "two points stand for up to {} ms: the least and the greatest value in it\n",
            figure(width)
        ),
    };
    for line in &drawn.channels {
        let range = match (line.min, line.max) {
            (Some(min), Some(max)) => format!("{} to {}", figure(min), figure(max)),
            _ => "no value".to_owned(),
        };
        text += &format!(
            "{}: {} samples, {} of them not valid, {range}\n",
            plain(&line.name),
            line.samples,
            line.missing
        );
    }
    for problem in &drawn.problems {
        text += &format!("can't be read: {}\n", plain(problem));
    }
    text
}
