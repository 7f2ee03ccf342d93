/* Spends its time in one function, called by another: spin ROUNDS STATUS. Without rounds it runs until it is ended. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static uint64_t spin_here(uint64_t n)
{
    volatile uint64_t x = 0;
    for (uint64_t i = 0; i < n; i++)
        x += i;
    return x;
}

__attribute__((noinline)) static uint64_t calls_spin(uint64_t n)
{
    uint64_t x = spin_here(n);
    return x + 1;
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], 0, 10) : 0;
    do
        calls_spin(20000000);
    while (rounds == 0 || --rounds);
    puts("spun");
    return argc > 2 ? atoi(argv[2]) : 0;
}
