//! Integers that stand for enumerations and for unsigned numbers in the file.
//!
//! Codes never change their meaning; new ones are added at the end. SQLite's integers are signed.

use throughline_profile::{Category, FrameKind, LuaContext, Measure, SwitchReason};

/// Ledger scopes, in the order of their codes: the whole capture, on-CPU alone, off-CPU alone.
pub(crate) const LEDGER_SCOPES: usize = 3;

/// Codes of `ledger.entry`.
pub(crate) mod ledger_entry {
    pub(crate) const TAKEN: i64 = 0;
    pub(crate) const KEPT: i64 = 1;
    pub(crate) const LOST: i64 = 2;
    pub(crate) const FLAGGED: i64 = 3;
}

/// A count or a number of nanoseconds; what does not fit becomes the largest integer, which means "that or more".
pub(crate) fn from_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The inverse of [`from_count`]; negative numbers are damage.
pub(crate) fn to_count(value: i64) -> Option<u64> {
    match value {
        i64::MAX => Some(u64::MAX),
        value => u64::try_from(value).ok(),
    }
}

/// An address: the same 64 bits, so that kernel addresses are negative.
pub(crate) fn from_address(address: u64) -> i64 {
    address.cast_signed()
}

/// The inverse of [`from_address`].
pub(crate) fn to_address(value: i64) -> u64 {
    value.cast_unsigned()
}

/// Code of a frame kind: its place in [`FrameKind::ALL`].
pub(crate) fn from_frame_kind(kind: FrameKind) -> i64 {
    place(&FrameKind::ALL, kind)
}

/// The inverse of [`from_frame_kind`].
pub(crate) fn to_frame_kind(code: i64) -> Option<FrameKind> {
    at(&FrameKind::ALL, code)
}

/// Code of a Lua context: its place in [`LuaContext::ALL`].
pub(crate) fn from_lua_context(lua: LuaContext) -> i64 {
    place(&LuaContext::ALL, lua)
}

/// The inverse of [`from_lua_context`].
pub(crate) fn to_lua_context(code: i64) -> Option<LuaContext> {
    at(&LuaContext::ALL, code)
}

/// Code of a category: its place in [`Category::ALL`].
pub(crate) fn from_category(category: Category) -> i64 {
    place(&Category::ALL, category)
}

/// The inverse of [`from_category`].
pub(crate) fn to_category(code: i64) -> Option<Category> {
    at(&Category::ALL, code)
}

/// Code of a measure: its place in [`Measure::ALL`].
pub(crate) fn from_measure(measure: Measure) -> i64 {
    place(&Measure::ALL, measure)
}

/// The inverse of [`from_measure`].
pub(crate) fn to_measure(code: i64) -> Option<Measure> {
    at(&Measure::ALL, code)
}

const SWITCH_REASONS: [SwitchReason; 2] = [SwitchReason::Voluntary, SwitchReason::Preempted];

/// Code of a reason to leave the core: 0 voluntary, 1 preempted.
pub(crate) fn from_switch_reason(reason: SwitchReason) -> i64 {
    place(&SWITCH_REASONS, reason)
}

/// The inverse of [`from_switch_reason`].
pub(crate) fn to_switch_reason(code: i64) -> Option<SwitchReason> {
    at(&SWITCH_REASONS, code)
}

/// The place of a value in the list of its codes; -1, which no reader accepts, when it is not listed.
fn place<T: PartialEq>(codes: &[T], value: T) -> i64 {
    codes
        .iter()
        .position(|known| *known == value)
        .map_or(-1, |at| at as i64)
}

fn at<T: Copy>(codes: &[T], code: i64) -> Option<T> {
    codes.get(usize::try_from(code).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_code_and_comes_back() {
        // The lists must hold every variant, or a value would be written that nobody can read.
        for (code, kind) in FrameKind::ALL.into_iter().enumerate() {
            assert_eq!(from_frame_kind(kind), code as i64);
            assert_eq!(to_frame_kind(code as i64), Some(kind));
        }
        for (code, lua) in LuaContext::ALL.into_iter().enumerate() {
            assert_eq!(from_lua_context(lua), code as i64);
            assert_eq!(to_lua_context(code as i64), Some(lua));
        }
        for (code, measure) in Measure::ALL.into_iter().enumerate() {
            assert_eq!(from_measure(measure), code as i64);
            assert_eq!(to_measure(code as i64), Some(measure));
        }
        for (code, category) in Category::ALL.into_iter().enumerate() {
            assert_eq!(from_category(category), code as i64);
            assert_eq!(to_category(code as i64), Some(category));
        }
        assert_eq!(from_switch_reason(SwitchReason::Voluntary), 0);
        assert_eq!(from_switch_reason(SwitchReason::Preempted), 1);
        assert_eq!(to_frame_kind(-1), None);
        assert_eq!(to_frame_kind(99), None);
    }

    #[test]
    fn no_limit_and_kernel_addresses_survive_signed_integers() {
        assert_eq!(to_count(from_count(u64::MAX)), Some(u64::MAX));
        assert_eq!(to_count(from_count(5_000_000_000)), Some(5_000_000_000));
        assert_eq!(to_count(-1), None);
        assert_eq!(from_address(0xffff_ffff_8100_0000), -0x7f00_0000);
        assert_eq!(to_address(-0x7f00_0000), 0xffff_ffff_8100_0000);
    }
}
