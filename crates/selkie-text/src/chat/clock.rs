//! The time as a template sees it. It is given by the caller: this crate has no clock.

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A date and a time of day where the reader is, in the Gregorian calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CivilTime {
    /// The year, for example 2025.
    pub year: u16,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, 1 to 31.
    pub day: u8,
    /// The hour, 0 to 23.
    pub hour: u8,
    /// The minute, 0 to 59.
    pub minute: u8,
    /// The second, 0 to 60.
    pub second: u8,
}

impl CivilTime {
    /// The civil time that is `seconds` after the start of 1970, where the offset from UTC is zero. Dates outside the
    /// years 1970 to 9999 become the nearest one inside.
    #[must_use]
    pub fn from_unix(seconds: u64) -> Self {
        /// The last day of 9999, counted from the start of 1970.
        const LAST_DAY: u64 = 2_932_896;
        let day = (seconds / 86_400).min(LAST_DAY);
        let time = (seconds % 86_400) as u32;
        // Years that begin in March have their leap day at the end: 400 of them are 146 097 days, and month lengths
        // follow a straight line.
        let shifted = day as u32 + 719_468;
        let era_day = shifted % 146_097;
        let year_of_era = (era_day - era_day / 1460 + era_day / 36_524 - era_day / 146_096) / 365;
        let year_day = era_day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * year_day + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = year_of_era + shifted / 146_097 * 400 + u32::from(month <= 2);
        Self {
            year: year as u16,
            month: month as u8,
            day: (year_day - (153 * march_month + 2) / 5 + 1) as u8,
            hour: (time / 3600) as u8,
            minute: (time / 60 % 60) as u8,
            second: (time % 60) as u8,
        }
    }

    /// The name of the month. That of January for a month that does not exist.
    fn month_name(self) -> &'static str {
        MONTHS.get(usize::from(self.month).wrapping_sub(1)).unwrap_or(&MONTHS[0])
    }

    /// The day of the year, from 1.
    fn year_day(self) -> u32 {
        let leap = self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let before = before.get(usize::from(self.month).wrapping_sub(1)).unwrap_or(&0);
        before + u32::from(self.day) + u32::from(leap && self.month > 2)
    }

    /// The day of the week, 0 for Sunday.
    fn weekday(self) -> u32 {
        let past = u32::from(self.year).saturating_sub(1);
        (past + past / 4 - past / 100 + past / 400 + self.year_day()) % 7
    }

    /// Python's `strftime` for the directives that do not depend on where the reader is.
    pub(super) fn format(self, format: &str) -> Result<String, Error> {
        let mut out = String::with_capacity(format.len() * 2);
        let mut rest = format.chars();
        while let Some(char) = rest.next() {
            if char != '%' {
                out.push(char);
                continue;
            }
            let mut directive = rest.next();
            let unpadded = directive == Some('-');
            if unpadded {
                directive = rest.next();
            }
            let Some(piece) = directive.and_then(|directive| self.directive(directive)) else {
                let what = format!("strftime_now does not know a directive of `{format}`");
                return Err(Error::new(ErrorKind::InvalidOperation, what));
            };
            let trimmed = piece.trim_start_matches(['0', ' ']);
            // "00" without padding is "0".
            out.push_str(match (unpadded, trimmed) {
                (true, "") => "0",
                (true, trimmed) => trimmed,
                (false, _) => &piece,
            });
        }
        Ok(out)
    }

    /// One directive of `strftime`.
    fn directive(self, directive: char) -> Option<String> {
        let weekday = WEEKDAYS[self.weekday() as usize % 7];
        let hour12 = (self.hour % 12 + 11) % 12 + 1;
        Some(match directive {
            'Y' => format!("{}", self.year),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.year_day()),
            'B' => self.month_name().to_owned(),
            'b' | 'h' => self.month_name()[..3].to_owned(),
            'A' => weekday.to_owned(),
            'a' => weekday[..3].to_owned(),
            'w' => self.weekday().to_string(),
            'u' => (self.weekday() + 6).rem_euclid(7).wrapping_add(1).to_string(),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{hour12:02}"),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.to_owned(),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
            'T' => format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
            'R' => format!("{:02}:{:02}", self.hour, self.minute),
            'D' => format!("{:02}/{:02}/{:02}", self.month, self.day, self.year % 100),
            // A civil time has no zone; Python writes nothing for one either.
            'Z' | 'z' => String::new(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_unix() {
        let at = |seconds| CivilTime::from_unix(seconds).format("%F %T %a %j").unwrap();
        assert_eq!(at(0), "1970-01-01 00:00:00 Thu 001");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00 Tue 060");
        assert_eq!(at(1_735_689_599), "2024-12-31 23:59:59 Tue 366");
        assert_eq!(at(1_767_225_600), "2026-01-01 00:00:00 Thu 001");
        assert!(at(u64::MAX).starts_with("9999-12-31"));
    }

    #[test]
    fn directives() {
        let time = CivilTime { year: 2024, month: 7, day: 6, hour: 0, minute: 5, second: 9 };
        let format = |format| time.format(format).unwrap();
        assert_eq!(format("%d %b %Y"), "06 Jul 2024");
        assert_eq!(format("%A, %B %-d, %y %I:%M %p %%"), "Saturday, July 6, 24 12:05 AM %");
        assert_eq!(format("%e|%-H|%u|%w|%D"), " 6|0|6|6|07/06/24");
        assert!(time.format("%Q").is_err());
        assert!(time.format("50%").is_err());
        let odd = CivilTime { year: 0, month: 0, day: 0, hour: 255, minute: 255, second: 255 };
        assert!(odd.format("%A %B %b %j %I %p %F %T").is_ok());
    }
}
