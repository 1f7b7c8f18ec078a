"""Number formats as data: one line of fields a format, from which tables and casts follow.

Sources: IEEE 754-2019 (fp32, fp16); OCP 8-bit Floating Point Specification (OFP8) 1.0, section 5 (e4m3fn, e5m2); OCP
Microscaling Formats (MX) 1.0, section 5 (e2m1fn, e8m0fnu); AWS Neuron documentation, "Trainium2 architecture" (e4m3
with infinities, largest number 240); Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022 (fnuz).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from trnbench.status import UsageError
from trnbench.wording import nearest

Overflow = Literal["infinity", "nan", "saturate", "saturate finite"]
"""What becomes of a number that rounds beyond the largest; "saturate" turns infinities into the largest number as well,
"saturate finite" keeps them apart (infinity where the format has one, else NaN)."""

Specials = Literal["ieee", "fn", "fnuz", "finite", "e8m0"]
"""Which codes are no numbers: "ieee" the whole top exponent (infinities and NaN), "fn" only the code of all ones (NaN),
"fnuz" only the code of negative zero (NaN), "finite" none, "e8m0" the top code of an unsigned power of two (NaN)."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One scalar format of 1 sign bit (none for e8m0), `exponent_bits` and `fraction_bits`, in this order.

    `torch` and `ml_dtypes` name the dtypes of those libraries, None where there is none. `overflow` lists what a cast
    may do beyond the largest number: OFP8 (section 5.2.1) leaves the choice between NaN and saturation to e4m3fn. A
    format with an infinity must use it, for a saturated infinity hides that something overflowed.
    """

    name: str
    exponent_bits: int
    fraction_bits: int
    bias: int
    specials: Specials
    overflow: tuple[Overflow, ...]
    torch: str | None = None
    ml_dtypes: str | None = None

    @property
    def signed(self) -> bool:
        """Whether there is a sign bit."""
        return self.specials != "e8m0"

    @property
    def bits(self) -> int:
        """Width of a code."""
        return int(self.signed) + self.exponent_bits + self.fraction_bits

    @property
    def significant_bits(self) -> int:
        """Of a normal number, the implied leading one counted."""
        return self.fraction_bits + 1

    @property
    def least_exponent(self) -> int:
        """Exponent of the least normal number; e8m0 has no subnormal numbers, so its code 0 is 2^-127."""
        return -self.bias if self.specials == "e8m0" else 1 - self.bias

    @property
    def first_code(self) -> int:
        """Code of 2^least_exponent: below it lie zero and the subnormal numbers."""
        return 0 if self.specials == "e8m0" else 1 << self.fraction_bits

    @property
    def max_code(self) -> int:
        """Code of the largest positive number."""
        top = (1 << (self.exponent_bits + self.fraction_bits)) - 1
        if self.specials == "ieee":
            return top - (1 << self.fraction_bits)
        return top - 1 if self.specials in ("fn", "e8m0") else top

    @property
    def max(self) -> float:
        """The largest number."""
        exponent = (self.max_code - self.first_code >> self.fraction_bits) + self.least_exponent
        fraction = self.max_code & ((1 << self.fraction_bits) - 1)
        return (1.0 + fraction * 2.0**-self.fraction_bits) * 2.0**exponent

    @property
    def max_exponent(self) -> int:
        """Exponent of the largest number: Emax of the scale rules."""
        return (self.max_code - self.first_code >> self.fraction_bits) + self.least_exponent

    @property
    def has_infinity(self) -> bool:
        """Whether some codes are infinities."""
        return self.specials == "ieee"

    @property
    def has_nan(self) -> bool:
        """Whether some code is NaN."""
        return self.specials != "finite"

    @property
    def has_negative_zero(self) -> bool:
        """Whether minus zero has a code of its own."""
        return self.specials in ("ieee", "fn", "finite")

    @property
    def infinity_code(self) -> int | None:
        """Code of plus infinity, None where there is none."""
        return self.max_code + 1 if self.has_infinity else None

    @property
    def nan_code(self) -> int | None:
        """A code that is NaN (the quiet one of least payload), None where there is none."""
        top = (1 << (self.exponent_bits + self.fraction_bits)) - 1
        if self.specials == "ieee":
            return self.max_code + 1 + (1 << (self.fraction_bits - 1))
        return {"fn": top, "e8m0": top, "fnuz": top + 1}.get(self.specials)


_LOSES_INFINITY: tuple[Overflow, ...] = ("nan", "saturate", "saturate finite")

_FORMATS: tuple[Format, ...] = (
    Format(
        name="fp32",
        exponent_bits=8,
        fraction_bits=23,
        bias=127,
        specials="ieee",
        overflow=("infinity",),
        torch="float32",
        ml_dtypes="float32",
    ),
    Format(name="tf32", exponent_bits=8, fraction_bits=10, bias=127, specials="ieee", overflow=("infinity",)),
    Format(
        name="bf16",
        exponent_bits=8,
        fraction_bits=7,
        bias=127,
        specials="ieee",
        overflow=("infinity",),
        torch="bfloat16",
        ml_dtypes="bfloat16",
    ),
    Format(
        name="fp16",
        exponent_bits=5,
        fraction_bits=10,
        bias=15,
        specials="ieee",
        overflow=("infinity",),
        torch="float16",
        ml_dtypes="float16",
    ),
    Format(
        name="fp8 e4m3fn",
        exponent_bits=4,
        fraction_bits=3,
        bias=7,
        specials="fn",
        overflow=_LOSES_INFINITY,
        torch="float8_e4m3fn",
        ml_dtypes="float8_e4m3fn",
    ),
    Format(
        name="fp8 e4m3",
        exponent_bits=4,
        fraction_bits=3,
        bias=7,
        specials="ieee",
        overflow=("infinity",),
        ml_dtypes="float8_e4m3",
    ),
    Format(
        name="fp8 e5m2",
        exponent_bits=5,
        fraction_bits=2,
        bias=15,
        specials="ieee",
        overflow=("infinity",),
        torch="float8_e5m2",
        ml_dtypes="float8_e5m2",
    ),
    Format(
        name="fp8 e4m3fnuz",
        exponent_bits=4,
        fraction_bits=3,
        bias=8,
        specials="fnuz",
        overflow=_LOSES_INFINITY,
        torch="float8_e4m3fnuz",
        ml_dtypes="float8_e4m3fnuz",
    ),
    Format(
        name="fp8 e5m2fnuz",
        exponent_bits=5,
        fraction_bits=2,
        bias=16,
        specials="fnuz",
        overflow=_LOSES_INFINITY,
        torch="float8_e5m2fnuz",
        ml_dtypes="float8_e5m2fnuz",
    ),
    Format(
        name="fp4 e2m1fn",
        exponent_bits=2,
        fraction_bits=1,
        bias=1,
        specials="finite",
        overflow=("saturate",),
        torch="float4_e2m1fn_x2",
        ml_dtypes="float4_e2m1fn",
    ),
    Format(
        name="e8m0fnu",
        exponent_bits=8,
        fraction_bits=0,
        bias=127,
        specials="e8m0",
        overflow=("nan", "saturate"),
        torch="float8_e8m0fnu",
        ml_dtypes="float8_e8m0fnu",
    ),
)

FORMATS: dict[str, Format] = {one.name: one for one in _FORMATS}
"""Every scalar format by name."""


def scalar_format(name: str) -> Format:
    """The format called `name`. Raises `UsageError` for an unknown one."""
    if name not in FORMATS:
        raise UsageError(f"no number format {name!r}; {nearest(name, FORMATS, 'there are ' + ', '.join(FORMATS))}")
    return FORMATS[name]
