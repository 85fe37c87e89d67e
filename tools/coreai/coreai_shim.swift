// Core AI for C on macOS: the three functions of src/unit/npu/coreai_shim.h. Written from the documentation of the
// CoreAI framework; compiled only on a Mac, and nobody has run it yet (doc/npu.md says how):
//
//   swiftc -O -emit-library -o libtern_coreai.dylib -import-objc-header src/unit/npu/coreai_shim.h \
//       tools/coreai/coreai_shim.swift
//
// All memory is the caller's. A call waits for an asynchronous one, so it must not come from a thread of Swift's
// concurrency; tern calls from its own.
import CoreAI
import Foundation

private final class Asset: @unchecked Sendable {
    private let model: AIModel
    private var functions: [String: InferenceFunction] = [:]
    private let lock = NSLock()

    init(_ model: AIModel) { self.model = model }

    // A function owns its buffers, so each is loaded once.
    func function(_ name: String) throws -> InferenceFunction {
        lock.lock()
        defer { lock.unlock() }
        if let known = functions[name] { return known }
        guard let loaded = try model.loadFunction(named: name) else { throw CocoaError(.fileNoSuchFile) }
        functions[name] = loaded
        return loaded
    }
}

private final class Outcome<T>: @unchecked Sendable { var result: Result<T, Error>? }

private func waited<T>(_ work: @escaping @Sendable () async throws -> T) -> Result<T, Error> {
    let done = DispatchSemaphore(value: 0)
    let outcome = Outcome<T>()
    Task.detached {
        do { outcome.result = .success(try await work()) } catch { outcome.result = .failure(error) }
        done.signal()
    }
    done.wait()
    return outcome.result!
}

private func tell(_ error: Error, _ message: UnsafeMutablePointer<CChar>?, _ cap: Int64) {
    if let message, cap > 0 { strlcpy(message, "\(error)", Int(cap)) }
}

private struct Tensors: @unchecked Sendable {
    let list: UnsafeBufferPointer<tern_coreai_tensor>

    init(_ first: UnsafePointer<tern_coreai_tensor>?, _ n: Int64) { list = .init(start: first, count: Int(n)) }

    private static func sizes(_ t: tern_coreai_tensor) -> (shape: [Int], strides: [Int]) {
        let s = t.shape, d = t.stride
        return ([s.0, s.1, s.2, s.3, s.4].prefix(Int(t.rank)).map(Int.init),
                [d.0, d.1, d.2, d.3, d.4].prefix(Int(t.rank)).map(Int.init))
    }

    func inputs() -> InferenceFunction.Inputs {
        var views = InferenceFunction.Inputs()
        for t in list {
            let size = Self.sizes(t), raw = UnsafeRawBufferPointer(start: t.data, count: Int(t.bytes))
            views.insert(NDArray.RawView(bytes: RawSpan(_unsafeBytes: raw), scalarType: .float16, shape: size.shape,
                                         strides: size.strides),
                         for: String(cString: t.name))
        }
        return views
    }

    func written() -> InferenceFunction.MutableViews {
        var views = InferenceFunction.MutableViews()
        for t in list {
            let size = Self.sizes(t), raw = UnsafeMutableRawBufferPointer(start: t.data, count: Int(t.bytes))
            views.insert(NDArray.MutableRawView(mutableBytes: MutableRawSpan(_unsafeBytes: raw), scalarType: .float16,
                                                shape: size.shape, strides: size.strides),
                         for: String(cString: t.name))
        }
        return views
    }
}

@_cdecl("tern_coreai_load")
public func ternCoreAILoad(_ path: UnsafePointer<CChar>, _ unit: Int32, _ message: UnsafeMutablePointer<CChar>?,
                           _ cap: Int64) -> UnsafeMutableRawPointer? {
    // The framework does not follow symbolic links.
    let url = URL(fileURLWithPath: String(cString: path)).resolvingSymlinksInPath()
    let loaded = waited { () async throws -> Asset in
        let options: SpecializationOptions = switch unit {
        case Int32(TERN_COREAI_NEURAL_ENGINE): SpecializationOptions(preferredComputeUnitKind: .neuralEngine)
        case Int32(TERN_COREAI_GPU): SpecializationOptions(preferredComputeUnitKind: .gpu)
        case Int32(TERN_COREAI_CPU): .cpuOnly
        default: .default
        }
        return Asset(try await AIModel(contentsOf: url, options: options))
    }
    switch loaded {
    case .success(let asset): return Unmanaged.passRetained(asset).toOpaque()
    case .failure(let error):
        tell(error, message, cap)
        return nil
    }
}

@_cdecl("tern_coreai_run")
public func ternCoreAIRun(_ model: UnsafeMutableRawPointer, _ function: UnsafePointer<CChar>,
                          _ ins: UnsafePointer<tern_coreai_tensor>?, _ nIn: Int64,
                          _ states: UnsafePointer<tern_coreai_tensor>?, _ nState: Int64,
                          _ outs: UnsafePointer<tern_coreai_tensor>?, _ nOut: Int64,
                          _ message: UnsafeMutablePointer<CChar>?, _ cap: Int64) -> Int32 {
    let asset = Unmanaged<Asset>.fromOpaque(model).takeUnretainedValue()
    let name = String(cString: function)
    let read = Tensors(ins, nIn), kept = Tensors(states, nState), given = Tensors(outs, nOut)
    let ran = waited { () async throws -> Void in
        _ = try await asset.function(name).run(inputs: read.inputs(), states: kept.written(),
                                               outputViews: given.written())
    }
    if case .failure(let error) = ran {
        tell(error, message, cap)
        return 1
    }
    return 0
}

@_cdecl("tern_coreai_free")
public func ternCoreAIFree(_ model: UnsafeMutableRawPointer) { Unmanaged<Asset>.fromOpaque(model).release() }
