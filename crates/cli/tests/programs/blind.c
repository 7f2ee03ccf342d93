/* No unwinding tables and no frame pointers: nothing can find the callers of `lost`. */
#include <stdint.h>

__attribute__((noinline)) static uint64_t lost(uint64_t n)
{
    volatile uint64_t room[64];
    for (uint64_t i = 0; i < n; i++)
        room[i % 64] = i ^ n;
    return room[n % 64];
}

__attribute__((noinline)) static uint64_t between(uint64_t n)
{
    volatile uint64_t room[32];
    room[n % 32] = lost(n);
    return room[n % 32] + 1;
}

int main(void)
{
    volatile uint64_t x = 0;
    for (;;)
        x += between(20000000);
}
