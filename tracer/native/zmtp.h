/* Following the frames of one direction of a ZeroMQ connection; see zmtp.c. */
#ifndef VSKETCHDLC_ZMTP_H
#define VSKETCHDLC_ZMTP_H

#include <stddef.h>
#include <stdint.h>

#define ZMTP_META_BYTES 240

enum zmtp_phase { ZMTP_START, ZMTP_GREETING, ZMTP_HEADER, ZMTP_BODY, ZMTP_OTHER };

struct zmtp {
    uint64_t left;          /* bytes of the greeting or frame that are still to come */
    uint64_t message_bytes; /* bodies of the message's frames */
    uint64_t first_ns;      /* start of the call that moved the message's first byte */
    uint64_t key;
    uint16_t meta_bytes;
    uint8_t phase, have, flags, frame, key_bytes;
    unsigned char meta[ZMTP_META_BYTES];
};

/* `bytes` more of the stream went through, in a call from `start_ns` to `end_ns`. */
void vsk_zmtp(struct zmtp *stream, int connection, int sent, const void *buffer, size_t bytes, uint64_t start_ns,
              uint64_t end_ns);

#endif
