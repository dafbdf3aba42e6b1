/* ps-lite's messages inside TCP streams of ZeroMQ (ZMTP 3, NULL mechanism): MXNet's parameter servers.
 *
 * A stream begins with a greeting of 64 bytes (first byte 0xff, last of the signature 0x7f), then frames:
 *
 *   flags (bit 0 more frames follow, bit 1 long, bit 2 command), length (1 byte, or 8 big-endian when long), body
 *
 * A message is the frames up to one without "more". ps-lite puts its protobuf Meta into the first frame, the keys
 * into the second, then values and lengths. Of each message we keep the Meta and the first key, and when its first
 * and last byte went through. The stream is followed whether or not anything is recorded.
 */
#include <string.h>

#include "vsketch.h"
#include "zmtp.h"

enum { MORE = 1, LONG = 2, COMMAND = 4, GREETING_BYTES = 64 };

static void finish_message(struct zmtp *stream, int connection, int sent, uint64_t end_ns) {
    if (!(stream->flags & COMMAND) && stream->meta_bytes > 0 && vsk_wanted_now()) {
        vsk_record(VSK_MESSAGE, stream->first_ns, end_ns, sent ? VSK_FLAG_SENT : 0, (unsigned)connection,
                   stream->message_bytes | (uint64_t)stream->meta_bytes << 48, stream->key);
        for (unsigned part = 0; part * 16 < stream->meta_bytes; part++) {
            uint64_t words[2];
            memcpy(words, stream->meta + part * 16, 16);
            vsk_record(VSK_META, end_ns, end_ns, 0, part, words[0], words[1]);
        }
    }
    stream->frame = 0;
    stream->message_bytes = 0;
    stream->meta_bytes = stream->key_bytes = 0;
    stream->key = 0;
    memset(stream->meta, 0, sizeof stream->meta);
}

static void keep(struct zmtp *stream, const unsigned char *data, size_t bytes) {
    if (stream->frame == 0) {
        size_t room = sizeof stream->meta - stream->meta_bytes, take = bytes < room ? bytes : room;
        memcpy(stream->meta + stream->meta_bytes, data, take);
        stream->meta_bytes = (uint16_t)(stream->meta_bytes + take);
    } else if (stream->frame == 1) {
        while (stream->key_bytes < 8 && bytes > 0) {
            stream->key |= (uint64_t)*data++ << (8 * stream->key_bytes++);
            bytes--;
        }
    }
}

/* One more byte of a frame header; 1 when it is complete. */
static int header_byte(struct zmtp *stream, unsigned char byte) {
    if (stream->have++ == 0) {
        stream->flags = byte;
        stream->left = 0;
        return 0;
    }
    stream->left = stream->left << 8 | byte;
    return stream->have == (stream->flags & LONG ? 9 : 2);
}

static void end_of_frame(struct zmtp *stream, int connection, int sent, uint64_t end_ns) {
    stream->phase = ZMTP_HEADER;
    stream->have = 0;
    if (stream->flags & MORE)
        stream->frame++;
    else
        finish_message(stream, connection, sent, end_ns);
}

void vsk_zmtp(struct zmtp *stream, int connection, int sent, const void *buffer, size_t bytes, uint64_t start_ns,
              uint64_t end_ns) {
    const unsigned char *data = buffer;
    while (bytes > 0 && stream->phase != ZMTP_OTHER) {
        size_t used = 1;
        switch (stream->phase) {
            case ZMTP_START:
                stream->phase = *data == 0xff ? ZMTP_GREETING : ZMTP_OTHER;
                stream->left = GREETING_BYTES - 1;
                break;
            case ZMTP_GREETING:
                if (stream->left == GREETING_BYTES - 9 && *data != 0x7f) stream->phase = ZMTP_OTHER;
                if (--stream->left == 0) stream->phase = ZMTP_HEADER;
                break;
            case ZMTP_HEADER:
                if (stream->frame == 0 && stream->have == 0) stream->first_ns = start_ns;
                if (header_byte(stream, *data)) {
                    stream->message_bytes += stream->left;
                    stream->phase = ZMTP_BODY;
                    if (stream->left == 0) end_of_frame(stream, connection, sent, end_ns);
                }
                break;
            default:
                used = bytes < stream->left ? bytes : (size_t)stream->left;
                keep(stream, data, used);
                stream->left -= used;
                if (stream->left == 0) end_of_frame(stream, connection, sent, end_ns);
        }
        data += used;
        bytes -= used;
    }
}
