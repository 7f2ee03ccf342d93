//! What people see of a profile: the flame graph page, its SVG, and its folded text.
//!
//! [`flame_html`] makes one file that works from `file://` without a network: markup, style, script
//! and data in it, and a content security policy that lets in nothing else. [`flame_svg`] and
//! [`folded`] give one view of the same data ([`ViewPlan`]); the page's own "save" buttons give the
//! same bytes.
//!
//! The caller passes a profile whose handles belong together and writes the result somewhere.
//! Nothing here does I/O, reads a clock, or sums weights of different kinds: on-CPU samples, blocked
//! time and idle time are three views, never one.
//!
//! # Names
//!
//! Every name is foreign text: it may hold `<script>`, quotes, terminal escapes or characters that
//! turn the direction of writing. [`label`] makes the text of a frame, for every output. The page and
//! the SVG show a character that has no shape of its own as `\u{202e}` and escape markup; the SVG
//! is well-formed whatever the names are.
//!
//! # Folded text
//!
//! One stack a line, root first (innermost first in an inverted view), `frame;frame weight`, lines
//! sorted by bytes, equal stacks summed. Weights are samples, or nanoseconds for the off-CPU views. In a frame
//! `;` is written `\x3b`, the backslash `\\`, bytes 0x00 to 0x1f and 0x7f as `\x` and two lower-case
//! hex digits, and control characters and direction marks beyond ASCII as `\u{...}` in lower-case hex.
//! So a line feed cannot end a line and a `;` outside an escape always parts two frames; a reader takes
//! the weight after the last space. [`unescape_folded`] reads a frame back.
//!
//! ```
//! use throughline_profile::*;
//! use throughline_units::Nanos;
//! let mut profile = Profile::default();
//! let name = profile.strings.intern("a;b");
//! let frame = profile.frames.intern(Frame::new(FrameKind::Native, name));
//! let stack = profile.stacks.push(None, frame);
//! let thread = profile.threads.intern(Thread { pid: 7, tid: 7, comm: name, start_ns: None });
//! profile.samples.push(Sample::on_cpu(Nanos(0), thread, Some(stack)));
//! let text = throughline_report::folded(&profile, &Default::default()).unwrap();
//! assert_eq!(text, "a\\x3bb 1\n");
//! ```

mod boxes;
mod facts;
mod folded;
mod function;
mod inverted;
mod page;
mod payload;
mod places;
mod search;
mod svg;
mod text;
mod tree;
mod view;

pub use folded::folded;
pub use function::label;
pub use page::{FlamePlan, flame_html};
pub use svg::flame_svg;
pub use text::{escape_folded, unescape_folded};
pub use view::{View, ViewError, ViewPlan};
