#include "slices.h"

size_t element_bytes(enum element_type type)
{
    static const uint8_t bytes[TYPES] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8};
    return bytes[type];
}

const char *element_name(uint8_t type)
{
    static const char *const names[TYPES] = {"int8",  "uint8",  "int16",   "uint16",  "int32",  "uint32",
                                             "int64", "uint64", "float16", "float32", "float64"};
    return type < TYPES ? names[type] : "unknown";
}

const char *operation_name(uint8_t op)
{
    static const char *const names[OPERATIONS] = {"sum", "min", "max", "prod"};
    return op < OPERATIONS ? names[op] : "unknown";
}

static uint64_t fraction(uint64_t of, uint64_t part, uint64_t whole)
{
    return (uint64_t)((unsigned __int128)of * part / whole);
}

struct range segment_range(uint64_t count, uint32_t hosts, uint32_t segment)
{
    return (struct range){fraction(count, segment, hosts), fraction(count, segment + 1, hosts)};
}

static uint64_t slice_edge(uint64_t length, uint32_t share)
{
    /* Edges between lanes lie on multiples of 16 elements, for whole cache lines; the last edge is the end. */
    return share >= SHARE_WHOLE ? length : fraction(length, share, SHARE_WHOLE) / ELEMENTS_ALIGN * ELEMENTS_ALIGN;
}

struct range slice_range(struct range segment, uint32_t share_lo, uint32_t share_hi)
{
    uint64_t length = segment.end - segment.begin;
    return (struct range){segment.begin + slice_edge(length, share_lo), segment.begin + slice_edge(length, share_hi)};
}

uint64_t chunk_elements(uint32_t chunk_bytes, enum element_type type)
{
    uint64_t elements = chunk_bytes / element_bytes(type);
    return elements > 0 ? elements : 1;
}

uint32_t chunk_count(struct range slice, uint64_t elements_per_chunk)
{
    return (uint32_t)((slice.end - slice.begin + elements_per_chunk - 1) / elements_per_chunk);
}

struct range chunk_range(struct range slice, uint64_t elements_per_chunk, uint32_t chunk)
{
    uint64_t begin = slice.begin + chunk * elements_per_chunk;
    uint64_t end = begin + elements_per_chunk;
    return (struct range){begin, end < slice.end ? end : slice.end};
}
