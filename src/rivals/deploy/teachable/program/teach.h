/* A device that learns by itself: classes of images, in tasks, from a few images each, and forgets
   them again. C99, no heap. Written by rivals.

   What is learned lies in an array that you supply: for each class its names, a count, and the sum
   of the features of its images. Nothing else is kept of an image, so to forget a class is to take
   its entry away, and what remains is bit for bit what it would be had the class never been. */
#ifndef TEACH_H
#define TEACH_H

#include <stddef.h>
#include <stdint.h>

#include "network.h"

/* Bytes of an image: channel by channel, row by row. */
#define TEACH_PIXELS (TEACH_CHANNELS * TEACH_HEIGHT * TEACH_WIDTH)
#define TEACH_NAME 64     /* bytes of a name in UTF-8, with the zero at its end */
#define TEACH_MOST 65535u /* images that a class is learned from, at most */
#define TEACH_PAGE 256    /* bytes that are written to flash at once */

typedef enum {
    TEACH_OK,
    TEACH_FULL,
    TEACH_CLASS_FULL,
    TEACH_UNKNOWN,
    TEACH_EMPTY,
    TEACH_BAD_NAME,
    TEACH_WRONG_SIZE,
    TEACH_NOTHING_SAVED,
    TEACH_DAMAGED,
    TEACH_OTHER_NETWORK,
    TEACH_FLASH_FULL,
    TEACH_FLASH_FAILED
} teach_status;

/* What a status means, in one sentence. */
const char *teach_message(teach_status status);

/* A class. Its names are filled with zeros to their end. */
typedef struct {
    char task[TEACH_NAME];
    char name[TEACH_NAME];
    uint32_t count;
    int32_t sums[TEACH_FEATURES];
} teach_class;

typedef struct {
    teach_class *classes;
    uint32_t count;
    uint32_t capacity;
} teach_state;

/* The classes that the program knows from the start; see initial.c. */
extern const teach_class teach_initial[];
extern const uint32_t teach_initial_count;

/* Begin with what is known from the start, in an array for `capacity` classes. */
teach_status teach_start(teach_state *state, teach_class *room, uint32_t capacity);

/* Add an image to a class; with its first image a class begins. After an error nothing changed. */
teach_status teach_learn(teach_state *state, const uint8_t *image, size_t bytes, const char *task,
                         const char *name);

/* Forget a class; all classes of a task where `name` is NULL. */
teach_status teach_forget(teach_state *state, const char *task, const char *name);

typedef struct {
    const teach_class *found; /* in the state: valid until something is forgotten or restored */
    int32_t margin; /* how much likelier than the next class: 256 times the logarithm */
} teach_answer;

/* The class of an image, among those of a task, or among all of them where `task` is NULL. */
teach_status teach_predict(const teach_state *state, const uint8_t *image, size_t bytes,
                           const char *task, teach_answer *answer);

/* Two places of flash that take turns. A program supplies how they are read, erased and written;
   these return 0 where all went well. Offsets and sizes of writes are multiples of TEACH_PAGE. */
typedef struct {
    void *context;
    uint32_t bytes; /* of one of the two */
    int (*read)(void *context, int slot, uint32_t offset, uint8_t *data, uint32_t bytes);
    int (*erase)(void *context, int slot);
    int (*write)(void *context, int slot, uint32_t offset, const uint8_t *data, uint32_t bytes);
} teach_flash;

/* Bytes of flash that a state takes in one place, in whole pages. */
uint32_t teach_saved_bytes(uint32_t classes);

/* Write the state to the older place, and read it again. Whenever the power goes, the other place
   still holds the state before. */
teach_status teach_save(const teach_state *state, const teach_flash *flash);

/* Read the newest state whose checksum fits. After an error the state is as it was. */
teach_status teach_restore(teach_state *state, const teach_flash *flash);

/* Features of an image: TEACH_UNIT is one standard deviation. Keeps what is between the layers in
   static memory, so only one call at a time. */
#define TEACH_UNIT 256
void teach_features(const uint8_t *image, int16_t features[TEACH_FEATURES]);

#endif
