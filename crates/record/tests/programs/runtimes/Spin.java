// Three methods, one calling the other, that use the CPU for a while.
public class Spin {
    static int leafWork(int n) {
        int x = 0;
        for (int i = 0; i < n; i++) x = (x * 31 + i) % 1000003;
        return x;
    }

    static long middleWork(int n) {
        long sum = 0;
        for (int i = 0; i < 10; i++) sum += leafWork(n);
        return sum;
    }

    static long entryWork(int n) {
        return middleWork(n) + 1;
    }

    public static void main(String[] arguments) throws Exception {
        long total = 0;
        for (int i = 0; i < 30000; i++) total += entryWork(100);
        System.out.println("ready");
        System.in.read();
        long until = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L;
        while (System.nanoTime() < until) total += entryWork(1000);
        System.out.println("total " + total);
    }
}
