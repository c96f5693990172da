/* A clock for measuring. On a Cortex-M it is SysTick, which counts the processor's cycles; qemu has
   none, and with -icount shift=0 each of its ticks stands for 40 instructions. Elsewhere clock().
   Only -DTEACH_TICKS asks for it: qemu-arm emulates a processor without SysTick. */
#if defined(__ARM_ARCH_7EM__) && defined(TEACH_TICKS)
#include <stdint.h>

#define SYSTICK ((volatile uint32_t *)0xE000E010u) /* control, reload, value */

unsigned long ticks(void) {
    static uint32_t last;
    static unsigned long sum;
    uint32_t now;
    if (SYSTICK[0] == 0) {
        SYSTICK[1] = 0xFFFFFFu;
        SYSTICK[2] = 0;
        SYSTICK[0] = 5; /* on, the processor's clock, no interrupt */
    }
    now = SYSTICK[2];
    sum += (last - now) & 0xFFFFFFu; /* it counts down, in 24 bits */
    last = now;
    return sum;
}
#else
#include <time.h>

unsigned long ticks(void) {
    return (unsigned long)clock();
}
#endif
