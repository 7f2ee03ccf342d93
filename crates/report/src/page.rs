//! The page: one HTML file with everything in it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use throughline_profile::Profile;

use crate::text::markup;
use crate::{facts, payload};

/// Front end as `web/build.mjs` makes it; a test holds it equal to its sources.
const SCRIPT: &str = include_str!("../../../web/dist/flame.js");
const STYLE: &str = include_str!("../../../web/dist/flame.css");

/// What a page is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlamePlan {
    /// Title of the page; empty: the names of the targets.
    pub title: String,
}

/// The flame graph page of a profile: one UTF-8 HTML file that asks nothing of the network.
#[must_use]
pub fn flame_html(profile: &Profile, plan: &FlamePlan) -> String {
    let title = if plan.title.is_empty() {
        facts::title(profile)
    } else {
        plan.title.clone()
    };
    let payload = payload::encode(profile, &title);
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        source_hash(SCRIPT),
        source_hash(STYLE),
    );
    // The policy comes before anything it governs. The data block has a type that no browser runs.
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title} \u{2013} throughline</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <noscript>This page draws its graph by its own script. \
         Without one, use: throughline flame --svg</noscript>\n\
         <main id=\"app\"></main>\n\
         <script type=\"application/gzip+base64\" id=\"payload\">{payload}</script>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        title = markup(&title),
    )
}

/// A content security policy's source expression for an inline element.
fn source_hash(text: &str) -> String {
    format!(
        "sha256-{}",
        STANDARD.encode(Sha256::digest(text.as_bytes()))
    )
}
