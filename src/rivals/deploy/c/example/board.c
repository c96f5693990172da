/* What a bare Cortex-M4 needs before `main`: where its stack starts, where it begins, and its
   floating point switched on. Fits the MPS2 board that qemu-system-arm knows as mps2-an386; a board
   of your own comes with a file like this one. */
#include <stdint.h>

extern void _start(void); /* of newlib: clears memory and calls main */

static void reset(void) {
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: full access to the FPU */
    __asm__ volatile("dsb\n\tisb");
    _start();
}

void (*const vectors[16])(void) __attribute__((section(".vectors"))) = {
    (void (*)(void))0x00400000u, /* the end of 4 MB of memory */
    reset,
};
