// Work whose stacks are known, with what C++ adds to a stack: templates, virtual calls, exceptions, the standard library.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace geometry {
struct Shape {
	virtual ~Shape() = default;
	virtual unsigned long area(unsigned long n) const = 0;
};

template <typename T> struct Square : Shape {
	T side;
	explicit Square(T s) : side(s) {}
	__attribute__((noinline)) unsigned long area(unsigned long n) const override
	{
		unsigned long x = side;
		for (unsigned long i = 0; i < n; i++)
			x = (x * 31 + i) % 1000003;
		return x;
	}
};
} // namespace geometry

__attribute__((noinline)) static unsigned long sort_pairs(std::map<int, std::vector<int>> &input)
{
	std::vector<std::pair<int, std::string>> pairs;
	for (auto &[key, values] : input)
		for (int value : values)
			pairs.emplace_back(value % 101, std::to_string(key));
	std::sort(pairs.begin(), pairs.end(), [](const auto &a, const auto &b) { return a > b; });
	return pairs.size();
}

__attribute__((noinline)) static unsigned long throwing(int depth, const geometry::Shape &shape)
{
	if (depth > 0)
		return throwing(depth - 1, shape) + 1;
	unsigned long x = shape.area(100000);
	if (x % 2 < 2)
		throw std::runtime_error(std::to_string(x));
	return x;
}

int main(int, char **argv)
{
	std::map<int, std::vector<int>> input;
	for (int i = 0; i < 40; i++)
		for (int j = 0; j < 50; j++)
			input[i].push_back(i * j * 7919);
	std::puts("ready");
	std::fflush(stdout);
	std::getchar();
	auto until = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
	geometry::Square<unsigned> square(7);
	unsigned long total = 0;
	while (std::chrono::steady_clock::now() < until) {
		try {
			total += throwing(20, square);
		} catch (const std::runtime_error &error) {
			total += std::stoul(error.what());
		}
		total += sort_pairs(input);
	}
	std::printf("total %lu\n", total);
}
